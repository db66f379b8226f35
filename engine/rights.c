/* SPDX-License-Identifier: Apache-2.0 */
#include "rights.h"

#include <string.h>

static uint32_t
right_of(const char *word, size_t length)
{
	if (length != 4)
		return 0;
	if (memcmp(word, "push", 4) == 0)
		return KVP_RIGHT_PUSH;
	return memcmp(word, "pull", 4) == 0 ? KVP_RIGHT_PULL : 0;
}

bool
kvp_rights_parse(const char *text, uint32_t *rights_out)
{
	uint32_t rights = 0;

	while (*text != '\0' || rights != 0) {
		size_t length = strcspn(text, ",");
		uint32_t right = right_of(text, length);

		if (right == 0 || (rights & right) != 0)
			return false;
		rights |= right;
		if (text[length] == '\0')
			break;
		text += length + 1;
	}
	*rights_out = rights;
	return true;
}
