// SPDX-License-Identifier: Apache-2.0
// The header twice in one program: nothing in it may be defined twice.
#include <llm_datadist/llm_datadist.h>
#include <llm_datadist/llm_engine_types.h>
#include <llm_datadist/llm_error_codes.h>

int Link(llm_datadist::LlmDataDist &llm, uint16_t port);

int
Link(llm_datadist::LlmDataDist &llm, uint16_t port)
{
	llm_datadist::ClusterInfo cluster;
	llm_datadist::IpInfo info;
	std::vector<llm_datadist::Status> rets;

	info.ip = "127.0.0.1";
	info.port = port;
	cluster.remote_ip_infos.emplace_back(info);
	return llm.LinkLlmClusters({cluster}, rets, 5000) == llm_datadist::LLM_SUCCESS ? 0 : 1;
}
