/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "copy_kernels.h"

void
kvp_copy_plain(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

#if defined(__x86_64__)

/*
 * A non-temporal store that fills a whole line skips reading it first; one that
 * fills a part costs a partial write to memory. So heads and tails go through
 * the cache, and so do copies too small to have many whole lines.
 *
 * Two lines per turn. Four lines, prefetching the source (T0 or NTA, 512 to
 * 2048 bytes ahead) and alternating between two pages were no faster.
 */
#define STREAM_BYTES_MIN 256U
#define STEP_BYTES       ((size_t)2 * KVP_CACHE_LINE)

/* Copy up to the next line of `dst`; returns how many bytes that took. */
static inline size_t
copy_head(uint8_t *dst, const uint8_t *src)
{
	size_t head = (0 - (uintptr_t)dst) & (KVP_CACHE_LINE - 1);

	if (head != 0)
		memcpy(dst, src, head);
	return head;
}

void
kvp_copy_sse2(void *dst, const void *src, size_t bytes)
{
	uint8_t *to = dst;
	const uint8_t *from = src;
	size_t head;

	if (bytes < STREAM_BYTES_MIN) {
		memcpy(to, from, bytes);
		return;
	}
	head = copy_head(to, from);
	to += head;
	from += head;
	for (bytes -= head; bytes >= KVP_CACHE_LINE; bytes -= KVP_CACHE_LINE) {
		__m128i a = _mm_loadu_si128((const void *)(from));
		__m128i b = _mm_loadu_si128((const void *)(from + 16));
		__m128i c = _mm_loadu_si128((const void *)(from + 32));
		__m128i d = _mm_loadu_si128((const void *)(from + 48));

		_mm_stream_si128((void *)(to), a);
		_mm_stream_si128((void *)(to + 16), b);
		_mm_stream_si128((void *)(to + 32), c);
		_mm_stream_si128((void *)(to + 48), d);
		to += KVP_CACHE_LINE;
		from += KVP_CACHE_LINE;
	}
	if (bytes != 0)
		memcpy(to, from, bytes);
}

KVP_TARGET("avx2")
void
kvp_copy_avx2(void *dst, const void *src, size_t bytes)
{
	uint8_t *to = dst;
	const uint8_t *from = src;
	size_t head;

	if (bytes < STREAM_BYTES_MIN) {
		memcpy(to, from, bytes);
		return;
	}
	head = copy_head(to, from);
	to += head;
	from += head;
	for (bytes -= head; bytes >= STEP_BYTES; bytes -= STEP_BYTES) {
		__m256i a = _mm256_loadu_si256((const void *)(from));
		__m256i b = _mm256_loadu_si256((const void *)(from + 32));
		__m256i c = _mm256_loadu_si256((const void *)(from + 64));
		__m256i d = _mm256_loadu_si256((const void *)(from + 96));

		_mm256_stream_si256((void *)(to), a);
		_mm256_stream_si256((void *)(to + 32), b);
		_mm256_stream_si256((void *)(to + 64), c);
		_mm256_stream_si256((void *)(to + 96), d);
		to += STEP_BYTES;
		from += STEP_BYTES;
	}
	if (bytes >= KVP_CACHE_LINE) {
		__m256i a = _mm256_loadu_si256((const void *)(from));
		__m256i b = _mm256_loadu_si256((const void *)(from + 32));

		_mm256_stream_si256((void *)(to), a);
		_mm256_stream_si256((void *)(to + 32), b);
		to += KVP_CACHE_LINE;
		from += KVP_CACHE_LINE;
		bytes -= KVP_CACHE_LINE;
	}
	if (bytes != 0)
		memcpy(to, from, bytes);
}

KVP_TARGET("avx512f")
void
kvp_copy_avx512(void *dst, const void *src, size_t bytes)
{
	uint8_t *to = dst;
	const uint8_t *from = src;
	size_t head;

	if (bytes < STREAM_BYTES_MIN) {
		memcpy(to, from, bytes);
		return;
	}
	head = copy_head(to, from);
	to += head;
	from += head;
	for (bytes -= head; bytes >= STEP_BYTES; bytes -= STEP_BYTES) {
		__m512i a = _mm512_loadu_si512((const void *)(from));
		__m512i b = _mm512_loadu_si512((const void *)(from + 64));

		_mm512_stream_si512((void *)(to), a);
		_mm512_stream_si512((void *)(to + 64), b);
		to += STEP_BYTES;
		from += STEP_BYTES;
	}
	if (bytes >= KVP_CACHE_LINE) {
		_mm512_stream_si512((void *)(to), _mm512_loadu_si512((const void *)(from)));
		to += KVP_CACHE_LINE;
		from += KVP_CACHE_LINE;
		bytes -= KVP_CACHE_LINE;
	}
	if (bytes != 0)
		memcpy(to, from, bytes);
}

void
kvp_copy_fence(void)
{
	_mm_sfence();
}

#else

void
kvp_copy_fence(void)
{
	atomic_thread_fence(memory_order_release);
}

#endif
