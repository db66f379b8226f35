/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of settings, then the same bytes as an address and as a raw struct. A
 * refused setting changes nothing; what was set one by one passes the check,
 * but for the two rules between fields; what passes can be taken apart.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "check.h"
#include "config.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
use_checked(const struct kvp_config *config)
{
	char names[KVP_RAILS_MAX][KVP_NAME_MAX];
	int cpu[KVP_LANES_MAX];
	int count = kvp_config_transports(config, names);

	KVP_CHECK(count >= 1 && count <= (int)KVP_RAILS_MAX);
	for (int i = 0; i < count; i++)
		KVP_CHECK(strnlen(names[i], KVP_NAME_MAX) - 1 < KVP_NAME_MAX - 1);
	count = kvp_config_cpus(config, cpu);
	KVP_CHECK(count >= 0 && count <= (int)config->lanes);
	for (int i = 0; i < (int)KVP_LANES_MAX; i++)
		KVP_CHECK(i < count ? cpu[i] >= 0 && cpu[i] <= KVP_CPU_MAX : cpu[i] == -1);
}

static void
set_line(struct kvp_config *config, const char *line)
{
	struct kvp_config before = *config;
	kvp_status status = kvp_config_set(config, line);
	struct kvp_error error;

	if (status != KVP_SUCCESS) {
		KVP_CHECK(status == KVP_PARAM_INVALID);
		KVP_CHECK(memcmp(config, &before, sizeof(before)) == 0);
		KVP_CHECK(kvp_error_message()[0] != '\0');
	}
	before = *config;
	before.lanes = KVP_LANES_MAX;
	before.heartbeat_ms = KVP_HEARTBEAT_MS_MIN;
	KVP_CHECK(kvp_config_check(&before, &error) == KVP_SUCCESS);
	use_checked(&before);
}

static void
read_address(const char *text)
{
	struct sockaddr_storage address, again;
	char formatted[KVP_ADDRESS_TEXT_MAX];

	if (kvp_address_parse(text, &address, NULL) != KVP_SUCCESS)
		return;
	kvp_address_format(&address, formatted);
	KVP_CHECK(kvp_address_parse(formatted, &again, NULL) == KVP_SUCCESS);
	KVP_CHECK(memcmp(&address, &again, sizeof(again)) == 0);
	KVP_CHECK(kvp_address_bytes(&address) > 0);
	KVP_CHECK(kvp_address_is_loopback(&address) == kvp_address_is_loopback(&again));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t first = offsetof(struct kvp_config, cluster_id);
	const size_t room = sizeof(struct kvp_config) - first;
	struct kvp_config config;
	char *text = malloc(size + 1);
	char *rest = text;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	read_address(text);
	kvp_config_init(&config);
	while (rest != NULL)
		set_line(&config, strsep(&rest, "\n"));
	free(text);

	/* Over the defaults, so that some of it passes. */
	memcpy((char *)&config + first, data, size < room ? size : room);
	if (kvp_config_check(&config, NULL) == KVP_SUCCESS)
		use_checked(&config);
	return 0;
}
