/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "address.h"
#include "check.h"
#include "report.h"
#include "rights.h"

enum kind {
	KIND_U32,
	KIND_U64,    /* also in hexadecimal */
	KIND_POWER,  /* u32, power of two */
	KIND_WORD,   /* u32: min + place in `words`, or that number */
	KIND_LISTEN, /* texts of KVP_TEXT_MAX bytes */
	KIND_NAMES,
	KIND_CPUS,
	KIND_RIGHTS,
	KIND_DEVICES,
	KIND_MTU, /* u32: 0, or a power of two in [min, max] */
};

struct setting {
	const char *key;
	size_t offset;
	enum kind kind;
	const char *initial; /* the default, read as kvp_config_set reads it */
	uint64_t min, max;   /* texts: none */
	const char *words;   /* separated by '|' */
	const char *help;
};

/* Key and place cannot come apart. */
#define FIELD(name) #name, offsetof(struct kvp_config, name)

static const struct setting settings[] = {
	{FIELD(cluster_id), KIND_U64, "0", 0, UINT64_MAX, NULL,
	 "this engine's number, unique among linked peers; 0x... is read too"},
	{FIELD(role), KIND_WORD, "mix", KVP_ROLE_PROMPT, KVP_ROLE_MIX, "prompt|decoder|mix",
	 "told to peers; role_rule says what it forbids"},
	{FIELD(role_rule), KIND_WORD, "label", KVP_ROLE_LABEL, KVP_ROLE_STRICT, "label|strict",
	 "strict: a decoder's pushes and a prompt's pulls fail"},
	{FIELD(lanes), KIND_U32, "1", 1, KVP_LANES_MAX, NULL, "polling threads"},
	{FIELD(listen), KIND_LISTEN, "", 0, 0, NULL,
	 "ipv4:port or [ipv6]:port to listen on, port 0 = any; empty = do not listen"},
	{FIELD(transports), KIND_NAMES, "verbs,shm,tcp", 0, 0, NULL,
	 "names in order of preference, separated by commas"},
	{FIELD(peer_rights), KIND_RIGHTS, "push,pull", 0, 0, NULL,
	 "what peers may do to this engine's caches: push, pull, both with a comma, or nothing"},
	{FIELD(lane_cpus), KIND_CPUS, "", 0, 0, NULL,
	 "CPU of lane 0, 1, ... separated by commas; a lane without one is not pinned"},
	{FIELD(idle), KIND_WORD, "adaptive", KVP_IDLE_ADAPTIVE, KVP_IDLE_POLL, "adaptive|poll",
	 "adaptive sleeps when idle, poll spins for ever"},
	{FIELD(idle_us), KIND_U32, "100", 0, 1000000, NULL,
	 "adaptive: microseconds of idleness before a lane sleeps"},
	{FIELD(timeout_ms), KIND_U32, "1000", 1, 3600000, NULL,
	 "milliseconds for calls that give 0"},
	{FIELD(heartbeat_ms), KIND_U32, "1000", KVP_HEARTBEAT_MS_MIN, KVP_HEARTBEAT_MS_MAX, NULL,
	 "milliseconds between signs of life to a peer"},
	{FIELD(dead_ms), KIND_U32, "3000", 30, 600000, NULL,
	 "milliseconds of silence after which a peer is lost; more than heartbeat_ms"},
	{FIELD(streams), KIND_U32, "2", 1, KVP_PATH_ENDPOINTS_MAX, NULL, "tcp streams per link"},
	{FIELD(verbs_devices), KIND_DEVICES, "", 0, 0, NULL,
	 "RDMA devices, or device:port, in this order; empty = all active ones, nearest first"},
	{FIELD(verbs_gid_index), KIND_U32, "255", 0, 255, NULL,
	 "of each port's GID table; 255 = chosen by rule"},
	{FIELD(verbs_rails), KIND_U32, "4", 1, 4, NULL, "RDMA ports of one link, at most"},
	{FIELD(verbs_qps), KIND_U32, "2", 1, 8, NULL, "queue pairs per peer and rail"},
	{FIELD(verbs_mtu), KIND_MTU, "0", 256, 4096, NULL,
	 "bytes, a power of two; 0 = what both ports have"},
	{FIELD(verbs_traffic_class), KIND_U32, "106", 0, 255, NULL,
	 "of RoCE packets; DSCP is a quarter of it"},
	{FIELD(verbs_service_level), KIND_U32, "0", 0, 15, NULL, "of InfiniBand packets"},
	{FIELD(verbs_timeout), KIND_U32, "16", 1, 31, NULL,
	 "of an acknowledgement: 4.096 us x 2^n, times verbs_retry + 1"},
	{FIELD(verbs_retry), KIND_U32, "6", 0, 7, NULL,
	 "times a request is sent again; some providers take 7 for ever"},
	{FIELD(verbs_rnr_retry), KIND_U32, "6", 0, 6, NULL,
	 "the same when the peer has no receive posted"},
	{FIELD(verbs_rnr_timer), KIND_U32, "12", 1, 31, NULL, "code of the wait before that"},
	{FIELD(verbs_pieces), KIND_U32, "30", 1, 30, NULL,
	 "pieces that one request gathers, at most"},
	{FIELD(max_transfers), KIND_POWER, "4096", 16, 65536, NULL,
	 "transfers in flight per engine and lane"},
	{FIELD(max_events), KIND_U32, "4096", 16, 65536, NULL, "events kept until they are polled"},
	{FIELD(window_requests), KIND_U32, "32", 1, 1024, NULL,
	 "requests outstanding per endpoint and transfer"},
	{FIELD(window_kib), KIND_U32, "4096", 64, 65536, NULL,
	 "KiB outstanding per endpoint and transfer"},
	{FIELD(huge_pages), KIND_U32, "0", 0, 1, NULL,
	 "1: caches from 2 MiB pages, an error when there are none"},
	{FIELD(insecure), KIND_U32, "0", 0, 1, NULL,
	 "1: allow control connections off loopback, without encryption"},
	{FIELD(eal_mem_mb), KIND_U32, "64", 16, 4096, NULL,
	 "MiB of DPDK heap; the first engine of the process decides"},
	{FIELD(log_level), KIND_U32, "2", 0, 4, NULL,
	 "on stderr: 0 silent, 1 error, 2 warning, 3 info, 4 debug"},
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

#define DEVICE_NAME_MAX 63U /* as IBV_SYSFS_NAME_MAX allows */

/* Texts that callers give are shown cut; kvp_fail makes them printable. */
#define SHOWN "%.80s"

static bool
is_text(enum kind kind)
{
	return kind == KIND_LISTEN || kind == KIND_NAMES || kind == KIND_CPUS ||
	       kind == KIND_RIGHTS || kind == KIND_DEVICES;
}

/* Digits of `base` and nothing else. */
static bool
read_digits(const char *text, uint32_t base, uint64_t *value_out)
{
	uint64_t value = 0;

	if (*text == '\0')
		return false;
	for (; *text != '\0'; text++) {
		uint32_t digit = base;

		if (*text >= '0' && *text <= '9')
			digit = (uint32_t)(*text - '0');
		else if (*text >= 'a' && *text <= 'f')
			digit = 10 + (uint32_t)(*text - 'a');
		else if (*text >= 'A' && *text <= 'F')
			digit = 10 + (uint32_t)(*text - 'A');
		if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			return false;
	}
	*value_out = value;
	return true;
}

/* Refuse what lies outside the setting's range; `value` came from a text or from the struct. */
static kvp_status
check_number(const struct setting *setting, uint64_t value, struct kvp_error *err)
{
	bool is_power = setting->kind == KIND_POWER || setting->kind == KIND_MTU;

	if (setting->kind == KIND_MTU && value == 0)
		return KVP_SUCCESS;
	if (value >= setting->min && value <= setting->max &&
	    (!is_power || (value & (value - 1)) == 0))
		return KVP_SUCCESS;
	return kvp_fail(err, KVP_PARAM_INVALID, "%s %llu is not %s%sin [%llu, %llu]", setting->key,
			(unsigned long long)value, setting->kind == KIND_MTU ? "0 or " : "",
			is_power ? "a power of two " : "", (unsigned long long)setting->min,
			(unsigned long long)setting->max);
}

/* Place of `text` in words "a|b|c", or -1. */
static int
find_word(const char *words, const char *text)
{
	size_t length = strlen(text);

	for (int place = 0;; place++) {
		size_t span = strcspn(words, "|");

		if (span == length && memcmp(words, text, length) == 0)
			return place;
		if (words[span] == '\0')
			return -1;
		words += span + 1;
	}
}

static kvp_status
read_number(const struct setting *setting, const char *text, uint64_t *number_out,
	    struct kvp_error *err)
{
	int place = setting->words != NULL ? find_word(setting->words, text) : -1;
	bool is_hex = setting->kind == KIND_U64 && strncmp(text, "0x", 2) == 0;
	uint64_t number;
	kvp_status status;

	if (place >= 0) {
		*number_out = setting->min + (uint64_t)place;
		return KVP_SUCCESS;
	}
	if (!read_digits(is_hex ? text + 2 : text, is_hex ? 16 : 10, &number))
		return kvp_fail(err, KVP_PARAM_INVALID,
				"%s '" SHOWN "' is not %s%sa number in [%llu, %llu]", setting->key,
				text, setting->words != NULL ? setting->words : "",
				setting->words != NULL ? " or " : "",
				(unsigned long long)setting->min, (unsigned long long)setting->max);
	status = check_number(setting, number, err);
	if (status == KVP_SUCCESS)
		*number_out = number;
	return status;
}

/* Take "a,b" apart. Returns how many, or -1 and the reason. */
static int
read_names(const char *text, char names[KVP_RAILS_MAX][KVP_NAME_MAX], struct kvp_error *err)
{
	uint32_t count = 0;

	for (const char *at = text;; at++) {
		size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz");

		if (length == 0 || (at[length] != ',' && at[length] != '\0')) {
			kvp_fail(err, KVP_PARAM_INVALID,
				 "transports '" SHOWN "' are not names [a-z]+ separated by commas",
				 text);
			return -1;
		}
		if (length >= KVP_NAME_MAX || count == KVP_RAILS_MAX) {
			kvp_fail(err, KVP_PARAM_INVALID,
				 "transports '" SHOWN
				 "' are more than %u, or one is longer than %u",
				 text, KVP_RAILS_MAX, KVP_NAME_MAX - 1);
			return -1;
		}
		memset(names[count], 0, KVP_NAME_MAX);
		memcpy(names[count], at, length);
		for (uint32_t i = 0; i < count; i++) {
			if (strcmp(names[i], names[count]) == 0) {
				kvp_fail(err, KVP_PARAM_INVALID,
					 "transports '" SHOWN "' name %s twice", text, names[i]);
				return -1;
			}
		}
		count++;
		at += length;
		if (*at == '\0')
			return (int)count;
	}
}

/* Take "2,3" apart; what is not given is -1. Returns how many are given, or -1 and the reason. */
static int
read_cpus(const char *text, int cpu[KVP_LANES_MAX], struct kvp_error *err)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < KVP_LANES_MAX; i++)
		cpu[i] = -1;
	if (*text == '\0')
		return 0;
	for (const char *at = text;; at++) {
		uint64_t value = UINT64_MAX;
		size_t length = strspn(at, "0123456789");
		char digits[16] = "";

		if (length < sizeof(digits))
			memcpy(digits, at, length);
		if (!read_digits(digits, 10, &value) || value > KVP_CPU_MAX ||
		    (at[length] != ',' && at[length] != '\0')) {
			kvp_fail(err, KVP_PARAM_INVALID,
				 "lane_cpus '" SHOWN
				 "' are not numbers in [0, %d] separated by commas",
				 text, KVP_CPU_MAX);
			return -1;
		}
		if (count == KVP_LANES_MAX) {
			kvp_fail(err, KVP_PARAM_INVALID, "lane_cpus '" SHOWN "' are more than %u",
				 text, KVP_LANES_MAX);
			return -1;
		}
		cpu[count++] = (int)value;
		at += length;
		if (*at == '\0')
			return (int)count;
	}
}

static kvp_status
check_listen(const char *text, struct kvp_error *err)
{
	struct sockaddr_storage address;
	struct kvp_error why;

	if (*text == '\0' || kvp_address_parse(text, &address, &why) == KVP_SUCCESS)
		return KVP_SUCCESS;
	return kvp_fail(err, KVP_ADDRESS, "listen: %s", why.text);
}

static kvp_status
check_rights(const char *text, struct kvp_error *err)
{
	uint32_t rights;

	if (kvp_rights_parse(text, &rights))
		return KVP_SUCCESS;
	return kvp_fail(err, KVP_PARAM_INVALID,
			"peer_rights '" SHOWN "' are not push, pull, both with a comma, or nothing",
			text);
}

/* Names as the kernel gives them, each maybe with a port. Which exist is asked elsewhere. */
static bool
are_devices(const char *text)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

	for (const char *at = text; *text != '\0'; at++) {
		size_t length = strspn(at, letters);

		if (length < 1 || length > DEVICE_NAME_MAX)
			return false;
		at += length;
		if (*at == ':') {
			length = strspn(++at, "0123456789");
			if (length < 1 || length > 3)
				return false;
			at += length;
		}
		if (*at == '\0')
			return true;
		if (*at != ',')
			return false;
	}
	return true;
}

static kvp_status
check_devices(const char *text, struct kvp_error *err)
{
	if (are_devices(text))
		return KVP_SUCCESS;
	return kvp_fail(err, KVP_PARAM_INVALID,
			"verbs_devices '" SHOWN
			"' are not names, each maybe with :port, separated by commas",
			text);
}

static kvp_status
check_text(const struct setting *setting, const char *text, struct kvp_error *err)
{
	char names[KVP_RAILS_MAX][KVP_NAME_MAX];
	int cpu[KVP_LANES_MAX];

	if (memchr(text, '\0', KVP_TEXT_MAX) == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is longer than %d bytes", setting->key,
				KVP_TEXT_MAX - 1);
	if (setting->kind == KIND_LISTEN)
		return check_listen(text, err);
	if (setting->kind == KIND_NAMES)
		return read_names(text, names, err) < 0 ? KVP_PARAM_INVALID : KVP_SUCCESS;
	if (setting->kind == KIND_RIGHTS)
		return check_rights(text, err);
	if (setting->kind == KIND_DEVICES)
		return check_devices(text, err);
	return read_cpus(text, cpu, err) < 0 ? KVP_PARAM_INVALID : KVP_SUCCESS;
}

static kvp_status
set_field(struct kvp_config *config, const struct setting *setting, const char *value,
	  struct kvp_error *err)
{
	uint8_t *field = (uint8_t *)config + setting->offset;
	char text[KVP_TEXT_MAX] = "";
	uint64_t number = 0;
	uint32_t narrow;
	kvp_status status;

	if (is_text(setting->kind)) {
		/* Without its NUL, check_text calls it too long. */
		memcpy(text, value, strnlen(value, sizeof(text)));
		/* A malformed address is a malformed value here. */
		if (check_text(setting, text, err) != KVP_SUCCESS)
			return KVP_PARAM_INVALID;
		memcpy(field, text, sizeof(text));
		return KVP_SUCCESS;
	}
	status = read_number(setting, value, &number, err);
	if (status != KVP_SUCCESS)
		return status;
	narrow = (uint32_t)number;
	if (setting->kind == KIND_U64)
		memcpy(field, &number, sizeof(number));
	else
		memcpy(field, &narrow, sizeof(narrow));
	return KVP_SUCCESS;
}

static kvp_status
check_size(const struct kvp_config *config, struct kvp_error *err)
{
	if (config->size == sizeof(*config))
		return KVP_SUCCESS;
	return kvp_fail(
		err, KVP_PARAM_INVALID,
		"config.size is %zu, this library's struct kvp_config has %zu bytes: not filled "
		"by kvp_config_init, or another version's headers",
		config->size, sizeof(*config));
}

void
kvp_config_init(struct kvp_config *config)
{
	kvp_status status;

	if (config == NULL)
		return;
	memset(config, 0, sizeof(*config));
	config->size = sizeof(*config);
	for (size_t i = 0; i < SETTINGS; i++) {
		status = set_field(config, &settings[i], settings[i].initial, NULL);
		KVP_CHECK(status == KVP_SUCCESS);
	}
}

kvp_status
kvp_config_set(struct kvp_config *config, const char *setting)
{
	struct kvp_error *err = kvp_error_here();
	const char *equals;
	kvp_status status;
	size_t length;

	if (config == NULL || setting == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				config == NULL ? "config" : "setting");
	status = check_size(config, err);
	if (status != KVP_SUCCESS)
		return status;
	equals = strchr(setting, '=');
	if (equals == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "setting '" SHOWN "' has no '='", setting);
	length = (size_t)(equals - setting);
	for (size_t i = 0; i < SETTINGS; i++) {
		if (strlen(settings[i].key) == length &&
		    memcmp(settings[i].key, setting, length) == 0)
			return set_field(config, &settings[i], equals + 1, err);
	}
	return kvp_fail(err, KVP_PARAM_INVALID,
			"setting '" SHOWN "' is unknown; kvp_config_help() lists the keys",
			setting);
}

kvp_status
kvp_config_check(const struct kvp_config *config, struct kvp_error *err)
{
	int cpu[KVP_LANES_MAX], cpus;
	kvp_status status;

	if (config == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "config is NULL");
	status = check_size(config, err);
	for (size_t i = 0; i < SETTINGS && status == KVP_SUCCESS; i++) {
		const uint8_t *field = (const uint8_t *)config + settings[i].offset;
		uint64_t number;
		uint32_t narrow;

		if (is_text(settings[i].kind)) {
			status = check_text(&settings[i], (const char *)field, err);
			continue;
		}
		memcpy(&narrow, field, sizeof(narrow));
		number = narrow;
		if (settings[i].kind == KIND_U64)
			memcpy(&number, field, sizeof(number));
		status = check_number(&settings[i], number, err);
	}
	if (status != KVP_SUCCESS)
		return status;
	if (config->dead_ms <= config->heartbeat_ms)
		return kvp_fail(err, KVP_PARAM_INVALID, "dead_ms %u is not above heartbeat_ms %u",
				config->dead_ms, config->heartbeat_ms);
	cpus = read_cpus(config->lane_cpus, cpu, err);
	if (cpus > (int)config->lanes)
		return kvp_fail(err, KVP_PARAM_INVALID, "lane_cpus '" SHOWN "' are %d for lanes %u",
				config->lane_cpus, cpus, config->lanes);
	return KVP_SUCCESS;
}

int
kvp_config_cpus(const struct kvp_config *config, int cpu_out[KVP_LANES_MAX])
{
	return read_cpus(config->lane_cpus, cpu_out, NULL);
}

int
kvp_config_transports(const struct kvp_config *config, char names_out[KVP_RAILS_MAX][KVP_NAME_MAX])
{
	return read_names(config->transports, names_out, NULL);
}

/* What the third column says before the help. */
static void
describe_range(const struct setting *setting, char *text, size_t size)
{
	if (setting->words != NULL)
		snprintf(text, size, "%s: ", setting->words);
	else if (is_text(setting->kind))
		snprintf(text, size, "text: ");
	else
		snprintf(text, size, "%s[%llu, %llu]: ",
			 setting->kind == KIND_POWER ? "power of two in "
			 : setting->kind == KIND_MTU ? "0 or power of two in "
						     : "",
			 (unsigned long long)setting->min, (unsigned long long)setting->max);
}

int
kvp_config_help(char *text, size_t size)
{
	size_t used = 0;
	char range[64];

	if (text == NULL)
		size = 0;
	else if (size > 0)
		text[0] = '\0';
	for (size_t i = 0; i < SETTINGS; i++) {
		size_t left = used < size ? size - used : 0;
		int more;

		describe_range(&settings[i], range, sizeof(range));
		more = snprintf(left > 0 ? text + used : NULL, left, "%s\t%s\t%s%s\n",
				settings[i].key, settings[i].initial, range, settings[i].help);
		KVP_CHECK(more >= 0);
		used += (size_t)more;
	}
	return (int)used;
}
