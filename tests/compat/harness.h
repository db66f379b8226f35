/* SPDX-License-Identifier: Apache-2.0 */
/* harness.h - cmocka for C++, and which transports the tests run over (see tests/integ/pair.h for the environment) */
#ifndef KVP_TESTS_HARNESS_H
#define KVP_TESTS_HARNESS_H

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* "shm", "tcp", "verbs": those that KVP_TEST_TRANSPORTS names. */
inline std::vector<std::string>
Transports()
{
	const char *given = std::getenv("KVP_TEST_TRANSPORTS");
	std::string rest = given == nullptr ? "shm,tcp" : given;
	std::vector<std::string> names;

	while (!rest.empty()) {
		std::string one = rest.substr(0, rest.find(','));

		rest.erase(0, one.size() + 1);
		names.push_back(one);
	}
	return names;
}

inline std::string
EnvironmentOr(const char *name, const char *otherwise)
{
	const char *value = std::getenv(name);
	return value == nullptr ? otherwise : value;
}

/* KVPUSH_SETTINGS for the side whose devices KVP_TEST_VERBS_A or _B names. */
inline std::string
SettingsOf(const std::string &transport, char side)
{
	std::string settings = "log_level=1;transports=" + transport;

	if (transport == "verbs")
		settings +=
			";verbs_devices=" +
			EnvironmentOr(side == 'A' ? "KVP_TEST_VERBS_A" : "KVP_TEST_VERBS_B", "");
	return settings;
}

/* Ports that were free a moment ago. */
inline std::vector<uint16_t>
FreePorts(size_t count)
{
	std::vector<uint16_t> ports;
	std::vector<int> fds;

	for (size_t i = 0; i < count; i++) {
		struct sockaddr_in address = {};
		socklen_t bytes = sizeof(address);
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		address.sin_family = AF_INET;
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		assert_int_equal(bind(fd, reinterpret_cast<sockaddr *>(&address), bytes), 0);
		assert_int_equal(getsockname(fd, reinterpret_cast<sockaddr *>(&address), &bytes),
				 0);
		ports.push_back(ntohs(address.sin_port));
		fds.push_back(fd);
	}
	for (int fd : fds)
		close(fd);
	return ports;
}

#endif // KVP_TESTS_HARNESS_H
