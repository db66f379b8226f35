// SPDX-License-Identifier: Apache-2.0
// The six samples, two processes each: this program starts itself as either.
#include <sys/wait.h>

#include <cstdio>
#include <cstring>

#include "flow.h"
#include "harness.h"

namespace
{

struct Side {
	const char *name;
	int (*run)(const flow::Ports &ports);
	char devices; /* of KVP_TEST_VERBS_A or _B */
};

const Side kSides[] = {
	{"push-prompt", flow::PushPrompt, 'A'},     {"push-decoder", flow::PushDecoder, 'B'},
	{"pull-prompt", flow::PullPrompt, 'A'},     {"pull-decoder", flow::PullDecoder, 'B'},
	{"switch-prompt", flow::SwitchPrompt, 'A'}, {"switch-decoder", flow::SwitchDecoder, 'B'},
};

pid_t
Spawn(const Side &side, const std::string &transport, const std::vector<uint16_t> &ports)
{
	std::string settings = SettingsOf(transport, side.devices);
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	setenv("KVPUSH_SETTINGS", settings.c_str(), 1);
	alarm(300);
	execl("/proc/self/exe", "test_flows", side.name, std::to_string(ports[0]).c_str(),
	      std::to_string(ports[1]).c_str(), std::to_string(ports[2]).c_str(), nullptr);
	_exit(127);
}

void
RunBoth(const char *flow)
{
	for (const std::string &transport : Transports()) {
		std::vector<uint16_t> ports = FreePorts(3);
		std::vector<pid_t> pids;

		for (const Side &side : kSides) {
			if (std::strncmp(side.name, flow, std::strlen(flow)) == 0)
				pids.push_back(Spawn(side, transport, ports));
		}
		assert_int_equal(pids.size(), 2);
		for (pid_t pid : pids) {
			int status = 0;

			assert_true(pid > 0);
			assert_int_equal(waitpid(pid, &status, 0), pid);
			if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
				fail_msg("%s over %s: a side ended with 0x%x", flow,
					 transport.c_str(), static_cast<unsigned>(status));
		}
	}
}

void
push_cache_and_blocks(void **state)
{
	(void)state;
	RunBoth("push-");
}

void
pull_cache_and_blocks(void **state)
{
	(void)state;
	RunBoth("pull-");
}

void
switch_roles(void **state)
{
	(void)state;
	RunBoth("switch-");
}

uint16_t
PortOf(const char *text)
{
	return static_cast<uint16_t>(std::strtoul(text, nullptr, 10));
}

} // namespace

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(push_cache_and_blocks),
		cmocka_unit_test(pull_cache_and_blocks),
		cmocka_unit_test(switch_roles),
	};

	for (const Side &side : kSides) {
		if (argc == 5 && std::strcmp(argv[1], side.name) == 0)
			return side.run({PortOf(argv[2]), PortOf(argv[3]), PortOf(argv[4])});
	}
	return cmocka_run_group_tests_name("flows", tests, nullptr, nullptr);
}
