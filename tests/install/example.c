/* SPDX-License-Identifier: Apache-2.0 */
/*
 * example.c - built against the installed library by `make check-install`
 *
 * Touches one function of every header, so a symbol that is declared but not
 * reachable through the installed files fails here.
 */
#include <stdio.h>
#include <string.h>

#include <kvpush/kvpush.h>

static int
explain_plan(void)
{
	const int64_t shape[] = {8, 1024};
	const uint64_t src[] = {0, 1, 2}, dst[] = {4, 5, 6};
	struct kvp_tensor tensors[2];
	struct kvp_plan_report report;
	unsigned char memory[2][8 * 1024];
	void *bases[] = {memory[0], memory[1]};
	struct kvp_plan_query query = {
		.src = tensors,
		.dst = tensors,
		.src_tensors = 2,
		.dst_tensors = 2,
		.tensors_per_layer = 2,
		.src_blocks = src,
		.dst_blocks = dst,
		.count = 3,
		.src_layers = {0, 0},
		.dst_layers = {0, 0},
	};

	if (kvp_tensors_uniform(KVP_DT_UINT8, shape, 2, bases, 2, tensors) != KVP_SUCCESS ||
	    kvp_plan_explain(&query, &report) != KVP_SUCCESS) {
		fprintf(stderr, "plan: %s\n", kvp_error_message());
		return 1;
	}
	if (report.bytes != 3 * 2 * 1024 || report.pieces != 6 || report.block_runs != 1) {
		fprintf(stderr, "plan: %llu bytes, %llu pieces, %u runs of blocks\n",
			(unsigned long long)report.bytes, (unsigned long long)report.pieces,
			(unsigned)report.block_runs);
		return 1;
	}
	return 0;
}

int
main(int argc, char **argv)
{
	struct kvp_config config;
	struct kvp_engine *engine = NULL;
	struct kvp_event event;
	size_t links = 1;

	if (argc != 2 || strcmp(kvp_version(), argv[1]) != 0) {
		fprintf(stderr, "kvp_version is %s\n", kvp_version());
		return 1;
	}
	if (explain_plan() != 0)
		return 1;
	kvp_config_init(&config);
	if (kvp_config_set(&config, "no_such_key=1") != KVP_PARAM_INVALID ||
	    kvp_config_set(&config, "cluster_id=9") != KVP_SUCCESS) {
		fprintf(stderr, "settings: %s\n", kvp_error_message());
		return 1;
	}
	if (kvp_open(&config, &engine) != KVP_SUCCESS) {
		fprintf(stderr, "open: %s\n", kvp_error_message());
		return 1;
	}
	if (kvp_event_poll(engine, &event) != KVP_NO_EVENT ||
	    kvp_link_list(engine, NULL, 0, &links) != KVP_SUCCESS || links != 0 ||
	    kvp_transfer_test(NULL) != KVP_PARAM_INVALID) {
		fprintf(stderr, "an idle engine: %s\n", kvp_error_message());
		return 1;
	}
	kvp_close(engine);
	printf("kvpush %s: %s\n", kvp_version(), kvp_status_name(KVP_SUCCESS));
	return 0;
}
