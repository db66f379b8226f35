/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - LLM-DataDist's options as a kvpush configuration
 *
 *   honoured   llm.ListenIpInfo, llm.SyncKvCacheWaitTime, llm.EnableSwitchRole, llm.BufPoolCfg (buf_pool_size),
 *              llm.RdmaTrafficClass, llm.RdmaServiceLevel, kvpush.<setting> (any setting of kvpush)
 *   checked    llm.DeviceId, llm.TransferBackend, llm.GlobalResourceConfig; llm.LocalCommRes when linking
 *   ignored    the rest of known keys, said once per key and process on stderr
 *   an error   any other key
 *
 * The environment variable KVPUSH_SETTINGS ("transports=tcp;lanes=2") comes before the options, for programs that
 * are not to be changed.
 */
#ifndef LLM_DATADIST_OPTIONS_H
#define LLM_DATADIST_OPTIONS_H

#include <arpa/inet.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include <kvpush/kvpush.h>

#include "llm_engine_types.h"

namespace llm_datadist
{

constexpr const char OPTION_LISTEN_IP_INFO[] = "llm.ListenIpInfo";
constexpr const char OPTION_DEVICE_ID[] = "llm.DeviceId";
constexpr const char OPTION_SYNC_CACHE_WAIT_TIME[] = "llm.SyncKvCacheWaitTime";
constexpr const char OPTION_BUF_POOL_CFG[] = "llm.BufPoolCfg";
constexpr const char OPTION_ENABLE_SET_ROLE[] = "llm.EnableSwitchRole";
constexpr const char OPTION_LOCAL_COMM_RES[] = "llm.LocalCommRes";
constexpr const char OPTION_TRANSFER_BACKEND[] = "llm.TransferBackend";
constexpr const char OPTION_GLOBAL_RESOURCE_CONFIG[] = "llm.GlobalResourceConfig";

using Options = std::map<AscendString, AscendString>;

namespace detail
{

inline std::string &
LastMessage()
{
	static thread_local std::string message;
	return message;
}

/* Keep a line for this thread, return the status. */
inline Status
Fail(Status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
inline Status
Fail(Status status, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	LastMessage() = text;
	return status;
}

/* Is it JSON? Of an object the top-level members, as their text. No value is interpreted. */
class Json
{
      public:
	explicit Json(const std::string &text) : at_(text.c_str()), end_(at_ + text.size())
	{
		Space();
		is_valid_ = at_ < end_ && Value(0);
		Space();
		is_valid_ = is_valid_ && at_ == end_;
	}
	bool IsObject() const
	{
		return is_valid_ && is_object_;
	}
	/* The text of a member; "" when there is none, or the whole is not JSON. */
	std::string Member(const char *name) const
	{
		auto found = members_.find(name);
		return !IsObject() || found == members_.end() ? "" : found->second;
	}

      private:
	static constexpr int kDepthMax = 64;

	void Space()
	{
		while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r'))
			at_++;
	}
	bool Take(char c)
	{
		if (at_ == end_ || *at_ != c)
			return false;
		at_++;
		return true;
	}
	bool Word(const char *word)
	{
		for (; *word != '\0'; word++) {
			if (!Take(*word))
				return false;
		}
		return true;
	}
	bool Digits()
	{
		const char *first = at_;

		while (at_ < end_ && *at_ >= '0' && *at_ <= '9')
			at_++;
		return at_ > first;
	}
	bool Number()
	{
		(void)Take('-');
		if (!Digits() || (Take('.') && !Digits()))
			return false;
		if (Take('e') || Take('E')) {
			if (!Take('+'))
				(void)Take('-');
			return Digits();
		}
		return true;
	}
	bool Text(std::string *out)
	{
		if (!Take('"'))
			return false;
		for (; at_ < end_ && *at_ != '"'; at_++) {
			if (static_cast<unsigned char>(*at_) < 0x20)
				return false;
			if (*at_ == '\\' && ++at_ == end_)
				return false;
			out->push_back(*at_);
		}
		return Take('"');
	}
	bool Object(int depth)
	{
		Space();
		if (Take('}'))
			return true;
		do {
			std::string name;
			const char *first;

			Space();
			if (!Text(&name))
				return false;
			Space();
			if (!Take(':'))
				return false;
			Space();
			first = at_;
			if (!Value(depth + 1))
				return false;
			if (depth == 0)
				members_[name] =
					std::string(first, static_cast<size_t>(at_ - first));
			Space();
		} while (Take(','));
		return Take('}');
	}
	bool Array(int depth)
	{
		Space();
		if (Take(']'))
			return true;
		do {
			Space();
			if (!Value(depth + 1))
				return false;
			Space();
		} while (Take(','));
		return Take(']');
	}
	bool Value(int depth)
	{
		std::string text;

		if (at_ == end_ || depth > kDepthMax)
			return false;
		switch (*at_) {
		case '{':
			at_++;
			is_object_ = is_object_ || depth == 0;
			return Object(depth);
		case '[':
			at_++;
			return Array(depth);
		case '"':
			return Text(&text);
		case 't':
			return Word("true");
		case 'f':
			return Word("false");
		case 'n':
			return Word("null");
		default:
			return Number();
		}
	}

	const char *at_;
	const char *end_;
	bool is_valid_ = false;
	bool is_object_ = false;
	std::map<std::string, std::string> members_;
};

/* Digits only, in [min, max]. */
inline bool
ReadNumber(const std::string &text, uint64_t min, uint64_t max, uint64_t *value_out)
{
	uint64_t value = 0;

	if (text.empty() || text.size() > 19)
		return false;
	for (char c : text) {
		if (c < '0' || c > '9')
			return false;
		value = value * 10 + static_cast<uint64_t>(c - '0');
	}
	*value_out = value;
	return value >= min && value <= max;
}

inline bool
IsIpv4(const char *text)
{
	struct in_addr address;
	return inet_pton(AF_INET, text, &address) == 1;
}

/* "ipv4:port" or "[ipv6]:port". */
inline bool
IsListenAddress(const std::string &text)
{
	size_t colon = text.rfind(':');
	struct in6_addr six;
	std::string host;
	uint64_t port;

	if (colon == std::string::npos || text.size() >= KVP_TEXT_MAX ||
	    !ReadNumber(text.substr(colon + 1), 0, 65535, &port))
		return false;
	host = text.substr(0, colon);
	if (host.size() > 2 && host.front() == '[' && host.back() == ']')
		return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six) == 1;
	return IsIpv4(host.c_str());
}

inline bool
IsLoopback(const std::string &listen)
{
	return listen.compare(0, 4, "127.") == 0 || listen.compare(0, 6, "[::1]:") == 0;
}

/* The first of a list "a;b;c", as V1 has them for several devices. */
inline std::string
FirstOf(const std::string &list)
{
	return list.substr(0, list.find(';'));
}

inline void
SayIgnored(const std::string &key)
{
	static std::mutex mutex;
	static std::set<std::string> said;
	std::lock_guard<std::mutex> lock(mutex);

	if (said.insert(key).second)
		(void)fprintf(stderr,
			      "kvpush: option %s is ignored: nothing here corresponds to it\n",
			      key.c_str());
}

/* What Initialize makes of its options. */
struct Settings {
	kvp_config config;
	uint64_t wait_ms = 1000;
	uint64_t pool_bytes = UINT64_MAX; /* for AllocateCache */
	bool may_set_role = true;
	std::string local_comm_res;
	bool has_insecure = false;

	Status Set(const std::string &setting)
	{
		has_insecure = has_insecure || setting.compare(0, 9, "insecure=") == 0;
		if (kvp_config_set(&config, setting.c_str()) != KVP_SUCCESS)
			return Fail(LLM_PARAM_INVALID, "%s", kvp_error_message());
		return LLM_SUCCESS;
	}
	Status Listen(const std::string &value)
	{
		std::string first = FirstOf(value);

		if (!IsListenAddress(first))
			return Fail(LLM_PARAM_INVALID, "%s is '%s': it is ipv4:port or [ipv6]:port",
				    OPTION_LISTEN_IP_INFO, value.c_str());
		return Set("listen=" + first);
	}
	Status Read(const std::string &key, const std::string &value);
	/* llm.LocalCommRes is looked at when linking, as upstream does. */
	Status CheckLocalCommRes() const
	{
		std::string version = Json(local_comm_res).Member("version");

		if (local_comm_res.empty() || version == "\"1.0\"" || version == "\"1.2\"" ||
		    version == "\"1.3\"")
			return LLM_SUCCESS;
		return Fail(LLM_PARAM_INVALID,
			    "%s is no JSON object with \"version\" 1.0, 1.2 or 1.3",
			    OPTION_LOCAL_COMM_RES);
	}
};

inline bool
IsKnownAndIgnored(const std::string &key)
{
	static const std::set<std::string> known = {"llm.Role",
						    "llm.ClusterInfo",
						    "llm.OutputMaxSize",
						    "llm.ListenIp",
						    "llm.ListenPort",
						    "llm.EnableRemoteCacheAccessible",
						    "llm.EnableCacheManager",
						    "llm.MemPoolConfig",
						    "llm.HostMemPoolConfig",
						    "llm.LinkTotalTime",
						    "llm.LinkRetryCount",
						    "llm.MemoryUtilization",
						    "llm.deployResPath",
						    "ge.exec.deviceId",
						    "ge.session_device_id",
						    "ge.flowGraphMemMaxSize"};
	return known.count(key) != 0;
}

inline Status
Settings::Read(const std::string &key, const std::string &value)
{
	uint64_t number = 0;

	if (key.compare(0, 7, "kvpush.") == 0)
		return Set(key.substr(7) + "=" + value);
	if (key == OPTION_LISTEN_IP_INFO)
		return Listen(value);
	if (key == OPTION_DEVICE_ID) {
		if (!ReadNumber(FirstOf(value), 0, INT32_MAX, &number))
			return Fail(LLM_PARAM_INVALID, "%s is '%s': it is a number of a device",
				    key.c_str(), value.c_str());
		return LLM_SUCCESS;
	}
	if (key == OPTION_SYNC_CACHE_WAIT_TIME) {
		if (!ReadNumber(value, 1, 3600000, &wait_ms))
			return Fail(LLM_PARAM_INVALID, "%s is '%s': it is in [1, 3600000] ms",
				    key.c_str(), value.c_str());
		return LLM_SUCCESS;
	}
	if (key == OPTION_BUF_POOL_CFG) {
		if (!ReadNumber(Json(value).Member("buf_pool_size"), 1, INT64_MAX, &pool_bytes))
			return Fail(LLM_PARAM_INVALID,
				    "%s is no JSON object with a buf_pool_size of at least 1",
				    key.c_str());
		return LLM_SUCCESS;
	}
	if (key == OPTION_ENABLE_SET_ROLE) {
		if (value != "0" && value != "1")
			return Fail(LLM_PARAM_INVALID, "%s is '%s', not 0 or 1", key.c_str(),
				    value.c_str());
		may_set_role = value == "1";
		return LLM_SUCCESS;
	}
	if (key == OPTION_LOCAL_COMM_RES) {
		local_comm_res = value;
		if (!value.empty())
			SayIgnored(key);
		return LLM_SUCCESS;
	}
	if (key == OPTION_TRANSFER_BACKEND) {
		if (value != "hixl")
			return Fail(LLM_PARAM_INVALID, "%s is '%s': only hixl is known",
				    key.c_str(), value.c_str());
		SayIgnored(key);
		return LLM_SUCCESS;
	}
	if (key == OPTION_GLOBAL_RESOURCE_CONFIG) {
		if (!Json(value).IsObject())
			return Fail(LLM_PARAM_INVALID, "%s is no JSON object", key.c_str());
		SayIgnored(key);
		return LLM_SUCCESS;
	}
	if (key == "llm.RdmaTrafficClass")
		return Set("verbs_traffic_class=" + value);
	if (key == "llm.RdmaServiceLevel")
		return Set("verbs_service_level=" + value);
	if (!IsKnownAndIgnored(key))
		return Fail(LLM_PARAM_INVALID, "option %s is not known", key.c_str());
	SayIgnored(key);
	return LLM_SUCCESS;
}

/* "key=value;key=value", as of KVPUSH_SETTINGS. */
inline Status
ReadSettings(const char *text, Settings *settings)
{
	std::string rest = text == nullptr ? "" : text;

	while (!rest.empty()) {
		std::string one = FirstOf(rest);

		rest.erase(0, one.size() + 1);
		if (one.empty())
			continue;
		Status status = settings->Set(one);
		if (status != LLM_SUCCESS)
			return status;
	}
	return LLM_SUCCESS;
}

inline Status
ReadOptions(uint64_t cluster_id, LlmRole role, const Options &options, Settings *settings)
{
	kvp_config &config = settings->config;
	Status status;

	kvp_config_init(&config);
	config.cluster_id = cluster_id;
	config.role = static_cast<uint32_t>(role);
	config.role_rule = KVP_ROLE_STRICT;
	status = ReadSettings(getenv("KVPUSH_SETTINGS"), settings);
	if (status != LLM_SUCCESS)
		return status;
	if (options.count(OPTION_DEVICE_ID) == 0)
		return Fail(LLM_PARAM_INVALID, "option %s is missing", OPTION_DEVICE_ID);
	for (const auto &option : options) {
		status = settings->Read(option.first.GetString(), option.second.GetString());
		if (status != LLM_SUCCESS)
			return status;
	}
	/* Upstream's control connections are open too, on the hosts' network. The engine warns of it. */
	if (!settings->has_insecure && !IsLoopback(config.listen))
		config.insecure = 1;
	return LLM_SUCCESS;
}

} // namespace detail
} // namespace llm_datadist

#endif // LLM_DATADIST_OPTIONS_H
