/* SPDX-License-Identifier: Apache-2.0 */
/* kvpush-verbs - the verbs transport beside ib_write_bw; see bench.h */
#include "bench.h"

int
main(int argc, char **argv)
{
	static struct bench_options options;

	bench_options_parse(&options, argc, argv);
	return bench_run(&options);
}
