/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the command `kvpush`
 *
 *   kvpush doctor [--explain] [KEY=VALUE...]   what this machine lets an engine do
 *   kvpush settings                            every setting with its default and range
 *
 * Exit status: 0 usable, 1 something asked for is not, 2 usage.
 */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpush/kvpush.h>

#define TEXT_BYTES 32768U
#define USAGE      2

struct options {
	struct kvp_config config;
	const char *command;
	bool is_explained;
};

static const struct argp_option option_list[] = {
	{"explain", 'e', NULL, 0,
	 "also what is in order, and why each port and GID was taken or not", 0},
	{0},
};

static void
print_version(FILE *out, struct argp_state *state)
{
	(void)state;
	(void)fprintf(out, "kvpush %s\n", kvp_version());
}

static error_t
parse_one(int key, char *value, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'e':
		options->is_explained = true;
		return 0;
	case ARGP_KEY_ARG:
		if (options->command == NULL) {
			options->command = value;
			if (strcmp(value, "doctor") != 0 && strcmp(value, "settings") != 0)
				argp_error(state, "'%s': there is doctor and settings", value);
		} else if (kvp_config_set(&options->config, value) != KVP_SUCCESS) {
			argp_error(state, "%s", kvp_error_message());
		}
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int
settings(void)
{
	static char text[TEXT_BYTES];

	(void)kvp_config_help(text, sizeof(text));
	(void)fputs(text, stdout);
	return 0;
}

/* Unless asked for more: what is not "ok", and what belongs to it. */
static void
print_findings(char *text, bool is_explained)
{
	bool is_shown = true;

	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
		if (line[0] != ' ')
			is_shown = is_explained || strncmp(line, "ok", 2) != 0;
		if (is_shown)
			(void)puts(line);
	}
}

static int
doctor(const struct options *options)
{
	static char text[TEXT_BYTES];
	kvp_status status = kvp_doctor(&options->config, text, sizeof(text));

	if (status == KVP_PARAM_INVALID) { /* settings that do not fit each other */
		(void)fprintf(stderr, "kvpush: %s\n", kvp_error_message());
		return USAGE;
	}
	print_findings(text, options->is_explained);
	if (status == KVP_SUCCESS) {
		(void)puts("usable");
		return 0;
	}
	(void)printf("not usable: %s\n", kvp_error_message());
	return EXIT_FAILURE;
}

int
main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = option_list,
		.parser = parse_one,
		.args_doc = "doctor [KEY=VALUE...]\nsettings",
		.doc = "Looks at what this machine lets a kvpush engine with these settings do.",
	};
	struct options options = {0};

	argp_err_exit_status = USAGE;
	argp_program_version_hook = print_version;
	kvp_config_init(&options.config);
	(void)argp_parse(&argp, argc, argv, 0, NULL, &options);
	return strcmp(options.command, "settings") == 0 ? settings() : doctor(&options);
}
