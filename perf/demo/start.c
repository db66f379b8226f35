/* SPDX-License-Identifier: Apache-2.0 */
#include "start.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"

#define LOOK_MS 100 /* how often a wait looks at demo_stop */

enum demo_end
demo_engine_failed(const char *side, const char *what, kvp_status status)
{
	(void)fprintf(stderr, "%s: %s: %s: %s: %s\n", DEMO_NAME, side, what,
		      kvp_status_name(status), kvp_error_message());
	return DEMO_FAILED;
}

enum demo_end
demo_system_failed(const char *side, const char *what, int error)
{
	if (error == -EPIPE && strcmp(side, "decoder") == 0)
		return DEMO_STOPPED;
	(void)fprintf(stderr, "%s: %s: %s: %s\n", DEMO_NAME, side, what,
		      error == -EPIPE ? "the other process is gone" : strerror(-error));
	return DEMO_FAILED;
}

enum demo_end
demo_engine_open(const struct demo_options *options, enum kvp_role role,
		 struct kvp_engine **engine_out)
{
	bool is_prompt = role == KVP_ROLE_PROMPT;
	const struct demo_settings *settings = is_prompt ? &options->prompt : &options->decoder;
	const char *side = is_prompt ? "prompt" : "decoder";
	struct kvp_config config;
	kvp_status status;

	kvp_config_init(&config);
	config.cluster_id = is_prompt ? DEMO_PROMPT_CLUSTER : DEMO_DECODER_CLUSTER;
	config.role = role;
	config.lanes = options->lanes;
	(void)snprintf(config.transports, sizeof(config.transports), "%s", options->transport);
	if (!is_prompt)
		(void)snprintf(config.listen, sizeof(config.listen), "127.0.0.1:0");
	for (uint32_t i = 0; i < settings->count; i++) {
		status = kvp_config_set(&config, settings->text[i]);
		if (status != KVP_SUCCESS)
			return demo_engine_failed(side, settings->text[i], status);
	}
	status = kvp_open(&config, engine_out);
	if (status != KVP_SUCCESS)
		return demo_engine_failed(side, "kvp_open", status);
	return DEMO_OK;
}

enum demo_end
demo_expect(struct demo_talk *talk, uint32_t type, size_t body_bytes,
	    struct demo_message *message_out)
{
	uint64_t end_ns = demo_now_ns() + DEMO_ANSWER_WAIT_MS * 1000000ULL;
	int rc = -EAGAIN;

	while (rc == -EAGAIN || rc == -EINTR) {
		if (demo_stop != 0)
			return DEMO_STOPPED;
		if (demo_now_ns() > end_ns)
			return demo_system_failed("prompt", "decoder's answer", -ETIMEDOUT);
		rc = demo_talk_receive(talk, LOOK_MS, message_out);
	}
	if (rc == 0 && (message_out->type != type || message_out->body_bytes < body_bytes))
		rc = -EPROTO;
	if (rc == 0)
		return DEMO_OK;
	return demo_stop != 0 ? DEMO_STOPPED : demo_system_failed("prompt", "decoder's answer", rc);
}
