// SPDX-License-Identifier: Apache-2.0
#include "flow.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>

using llm_datadist::AscendString;
using llm_datadist::Status;

namespace flow
{
namespace
{

constexpr int kPatienceMs = 60000;

[[noreturn]] void
Die(const char *what)
{
	std::perror(what);
	std::exit(1);
}

struct sockaddr_in
LoopbackOf(uint16_t port)
{
	struct sockaddr_in address = {};

	address.sin_family = AF_INET;
	address.sin_port = htons(port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

int
Accept(uint16_t port)
{
	struct sockaddr_in address = LoopbackOf(port);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	struct pollfd poller = {listener, POLLIN, 0};

	(void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0 ||
	    listen(listener, 1) != 0 || poll(&poller, 1, kPatienceMs) != 1)
		Die("control: listen");
	int fd = accept(listener, nullptr, nullptr);
	close(listener);
	return fd;
}

int
Connect(uint16_t port)
{
	struct sockaddr_in address = LoopbackOf(port);

	for (int waited_ms = 0; waited_ms < kPatienceMs; waited_ms += 10) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof(address)) == 0)
			return fd;
		close(fd);
		usleep(10000);
	}
	return -1;
}

} // namespace

Control::Control(uint16_t port, bool is_server) : fd_(is_server ? Accept(port) : Connect(port))
{
	if (fd_ < 0)
		Die("control");
}

Control::~Control()
{
	close(fd_);
}

void
Control::Meet()
{
	struct pollfd poller = {fd_, POLLIN, 0};
	char word = 'x';

	if (write(fd_, &word, 1) != 1 || poll(&poller, 1, kPatienceMs) != 1 ||
	    read(fd_, &word, 1) != 1)
		Die("control: the other process is gone");
}

Buffers::Buffers(bool is_filled)
{
	std::vector<int32_t> host(kInts, 0);

	for (uint32_t tensor = 0; tensor < kNumTensors; tensor++) {
		void *memory = nullptr;

		for (size_t i = 0; is_filled && i < kInts; i++)
			host[i] = static_cast<int32_t>(i + tensor * 1000);
		if (aclrtMalloc(&memory, kInts * sizeof(int32_t), ACL_MEM_MALLOC_HUGE_ONLY) !=
			    ACL_ERROR_NONE ||
		    aclrtMemcpy(memory, kInts * sizeof(int32_t), host.data(),
				kInts * sizeof(int32_t),
				ACL_MEMCPY_HOST_TO_DEVICE) != ACL_ERROR_NONE)
			Die(aclGetRecentErrMsg());
		memory_.push_back(memory);
	}
}

Buffers::~Buffers()
{
	for (void *memory : memory_)
		(void)aclrtFree(memory);
}

std::vector<uint64_t>
Buffers::Addresses() const
{
	std::vector<uint64_t> addresses;

	for (void *memory : memory_)
		addresses.push_back(reinterpret_cast<uint64_t>(memory));
	return addresses;
}

void
Buffers::Clear(size_t first, size_t last)
{
	std::vector<int32_t> zeroes((last - first) * kBlockInts, 0);

	for (void *memory : memory_)
		(void)aclrtMemcpy(static_cast<int32_t *>(memory) + first * kBlockInts,
				  zeroes.size() * sizeof(int32_t), zeroes.data(),
				  zeroes.size() * sizeof(int32_t), ACL_MEMCPY_HOST_TO_DEVICE);
}

bool
Buffers::Holds(size_t first, size_t last) const
{
	std::vector<int32_t> host(kInts);

	for (size_t tensor = 0; tensor < memory_.size(); tensor++) {
		(void)aclrtMemcpy(host.data(), kInts * sizeof(int32_t), memory_[tensor],
				  kInts * sizeof(int32_t), ACL_MEMCPY_DEVICE_TO_HOST);
		for (size_t i = 0; i < kInts; i++) {
			bool is_in = i / kBlockInts >= first && i / kBlockInts < last;
			int32_t want = is_in ? static_cast<int32_t>(i + tensor * 1000) : 0;

			if (host[i] == want)
				continue;
			std::fprintf(stderr, "tensor %zu, element %zu is %d, not %d\n", tensor, i,
				     host[i], want);
			return false;
		}
	}
	return true;
}

int
Wrong(const char *where, Status status)
{
	std::fprintf(stderr, "%s: 0x%08X: %s\n", where, status,
		     llm_datadist::GetLastErrorMessage());
	return 1;
}

std::map<AscendString, AscendString>
ListenOption(uint16_t port)
{
	std::map<AscendString, AscendString> options;
	std::string address = "127.0.0.1:" + std::to_string(port);

	options[llm_datadist::OPTION_LISTEN_IP_INFO] = address.c_str();
	return options;
}

int
Start(llm_datadist::LlmDataDist &llm, uint16_t port)
{
	std::map<AscendString, AscendString> options;

	if (port != 0)
		options = ListenOption(port);
	options[llm_datadist::OPTION_DEVICE_ID] = "0";
	options[llm_datadist::OPTION_SYNC_CACHE_WAIT_TIME] = "20000";
	Status status = llm.Initialize(options);
	return status == llm_datadist::LLM_SUCCESS ? 0 : Wrong("Initialize", status);
}

int
Register(llm_datadist::LlmDataDist &llm, const Buffers &buffers, int64_t &cache_id)
{
	llm_datadist::CacheDesc desc;

	desc.num_tensors = kNumTensors;
	desc.data_type = llm_datadist::DT_INT32;
	desc.shape = {static_cast<int64_t>(kBlocks), static_cast<int64_t>(kBlockInts)};
	Status status = llm.RegisterKvCache(desc, buffers.Addresses(), {}, cache_id);
	return status == llm_datadist::LLM_SUCCESS ? 0 : Wrong("RegisterKvCache", status);
}

namespace
{

std::vector<llm_datadist::ClusterInfo>
ClustersOf(uint64_t cluster_id, uint16_t port)
{
	llm_datadist::ClusterInfo cluster;
	llm_datadist::IpInfo local, remote;

	cluster.remote_cluster_id = cluster_id;
	local.ip = "127.0.0.1";
	remote.ip = "127.0.0.1";
	remote.port = port;
	cluster.local_ip_infos.emplace_back(local);
	cluster.remote_ip_infos.emplace_back(remote);
	return {cluster};
}

} // namespace

int
Link(llm_datadist::LlmDataDist &llm, uint64_t cluster_id, uint16_t port)
{
	std::vector<Status> rets;
	Status status = llm.LinkLlmClusters(ClustersOf(cluster_id, port), rets, kLinkMs);

	if (status == llm_datadist::LLM_SUCCESS && rets.size() == 1 && rets[0] == status)
		return 0;
	return Wrong("LinkLlmClusters", status);
}

int
Unlink(llm_datadist::LlmDataDist &llm, uint64_t cluster_id, uint16_t port)
{
	std::vector<Status> rets;
	Status status = llm.UnlinkLlmClusters(ClustersOf(cluster_id, port), rets, kLinkMs);

	if (status == llm_datadist::LLM_SUCCESS && rets.size() == 1 && rets[0] == status)
		return 0;
	return Wrong("UnlinkLlmClusters", status);
}

} // namespace flow
