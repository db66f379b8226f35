/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary layouts, requests, splits and cursor limits against a model that copies bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "check.h"
#include "plan_model.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct model_stats stats = {0};
	const char *wrong = plan_model_run(data, size, &stats);

	if (wrong != NULL)
		fprintf(stderr, "plan model: %s\n", wrong);
	KVP_CHECK(wrong == NULL);
	return 0;
}
