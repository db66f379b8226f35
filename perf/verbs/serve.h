/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.h - what a side does with the questions it is asked
 *
 * Threads:    the main thread of the side's process, which has no other of its own
 */
#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

#include <stdbool.h>

/* Answer questions from `fd` until its other end closes; engines are closed then. Exit status. */
int
bench_serve(bool is_sender, int fd);

#endif /* BENCH_SERVE_H */
