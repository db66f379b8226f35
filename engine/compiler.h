/* SPDX-License-Identifier: Apache-2.0 */
/* compiler.h - the only place that spells a compiler attribute */
#ifndef KVP_COMPILER_H
#define KVP_COMPILER_H

#define KVP_CACHE_LINE  64
#define KVP_SHARE_SPAN  128 /* two lines: the adjacent-line prefetcher pairs them */
#define KVP_SPAN_START  __attribute__((aligned(KVP_SHARE_SPAN)))
#define KVP_MUST_USE    __attribute__((warn_unused_result))
#define KVP_HOT         __attribute__((hot))
#define KVP_COLD        __attribute__((cold, noinline))
#define KVP_NOINLINE    __attribute__((noinline))
#define KVP_LIKELY(x)   __builtin_expect(!!(x), 1)
#define KVP_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Compile one function for an instruction set that the caller has checked for. */
#define KVP_TARGET(isa) __attribute__((target(isa)))

/*
 * Thread roles. clang -Wthread-safety proves that a function marked
 * KVP_ON_LCORE is reached only from code that declared itself an lcore.
 * They cost nothing at run time and vanish under gcc.
 */
#if defined(__clang__)
#define KVP_TSA(x) __attribute__((x))
#else
#define KVP_TSA(x)
#endif

struct KVP_TSA(capability("role")) kvp_thread_role {
	char unused;
};
extern struct kvp_thread_role kvp_lcore_role; /* declared, never defined */

#define KVP_ON_LCORE     KVP_TSA(requires_capability(kvp_lcore_role))
#define KVP_NOT_ON_LCORE KVP_TSA(locks_excluded(kvp_lcore_role))

static inline void
kvp_declare_lcore(void) KVP_TSA(assert_capability(kvp_lcore_role));
static inline void
kvp_declare_lcore(void)
{
}

#endif /* KVP_COMPILER_H */
