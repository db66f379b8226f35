/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the command line of kvpush-demo */
#ifndef DEMO_OPTIONS_H
#define DEMO_OPTIONS_H

#include "demo.h"

/*
 * Parse, and size the caches to the machine. Prints why and exits when something
 * is wrong, and for --help.
 */
void
demo_options_parse(int argc, char **argv, struct demo_options *options_out);

#endif /* DEMO_OPTIONS_H */
