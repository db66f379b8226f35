/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flow.h - LLM-DataDist's classic samples, two processes each
 *
 *   push     the prompt writes its blocks, then one batch slot, into the decoder's cache
 *   pull     the decoder reads blocks, then a batch slot, from the prompt's
 *   switch   the decoder pulls; both change roles; the one that was the decoder pushes
 *
 * Four int32 tensors of shape {8, 16}. As the samples do, processes start by themselves, listen where everybody
 * knows, and tell each other over a plain TCP connection when they are done. They differ from the samples in waiting
 * for that instead of sleeping.
 */
#ifndef KVP_TESTS_FLOW_H
#define KVP_TESTS_FLOW_H

#include <cstdint>
#include <vector>

#include "acl/acl.h"
#include "llm_datadist/llm_datadist.h"

namespace flow
{

constexpr uint16_t kPromptClusterId = 0;
constexpr uint16_t kDecoderClusterId = 1;
constexpr uint32_t kNumTensors = 4;
constexpr size_t kBlocks = 8;
constexpr size_t kBlockInts = 16;
constexpr size_t kInts = kBlocks * kBlockInts;
constexpr int32_t kLinkMs = 20000;

/* Ports of a run: the prompt's, the decoder's, of the conversation. */
struct Ports {
	uint16_t prompt, decoder, control;
};

/* One end of the conversation. Dies when the other end does not come within 60 s. */
class Control
{
      public:
	explicit Control(uint16_t port, bool is_server);
	~Control();
	Control(const Control &) = delete;
	Control &operator=(const Control &) = delete;
	/* Both ends call it, and return when both have. */
	void Meet();

      private:
	int fd_ = -1;
};

/* Four tensors in device memory: i, i + 1, ... or zeroes. Dies when something fails. */
class Buffers
{
      public:
	explicit Buffers(bool is_filled);
	~Buffers();
	Buffers(const Buffers &) = delete;
	Buffers &operator=(const Buffers &) = delete;
	std::vector<uint64_t> Addresses() const;
	/* Zeroes in blocks [first, last). */
	void Clear(size_t first, size_t last);
	/* Tensor by tensor, element by element: is [first, last) of blocks `base` + its place, and the rest 0? */
	bool Holds(size_t first, size_t last) const;
	bool AreFilled() const
	{
		return Holds(0, kBlocks);
	}

      private:
	std::vector<void *> memory_;
};

/* 0 when everything was as it has to be; else a line on stderr. */
int
PushPrompt(const Ports &ports);
int
PushDecoder(const Ports &ports);
int
PullPrompt(const Ports &ports);
int
PullDecoder(const Ports &ports);
int
SwitchPrompt(const Ports &ports);
int
SwitchDecoder(const Ports &ports);

/* "where: what, 0x5010B005: line" on stderr, 1. */
int
Wrong(const char *where, llm_datadist::Status status);

/* Initialize, listening on 127.0.0.1:`port` unless that is 0. */
int
Start(llm_datadist::LlmDataDist &llm, uint16_t port);
int
Register(llm_datadist::LlmDataDist &llm, const Buffers &buffers, int64_t &cache_id);
int
Link(llm_datadist::LlmDataDist &llm, uint64_t cluster_id, uint16_t port);
int
Unlink(llm_datadist::LlmDataDist &llm, uint64_t cluster_id, uint16_t port);
std::map<llm_datadist::AscendString, llm_datadist::AscendString>
ListenOption(uint16_t port);

} // namespace flow

#endif // KVP_TESTS_FLOW_H
