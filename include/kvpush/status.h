/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.h - what a call or a transfer ended in
 *
 * The values up to KVP_OUT_OF_MEMORY are LLM-DataDist's own numbers (its
 * `llm_datadist.h`, "Status codes"), so that callers and dashboards which know
 * those keep working. kvpush's own block starts at KVP_STATUS_OWN.
 *
 * Every call that does not return KVP_SUCCESS leaves one line for the calling
 * thread in kvp_error_message(): the argument, its value and the limit, or the
 * object and the system error, and what to change.
 */
#ifndef KVPUSH_STATUS_H
#define KVPUSH_STATUS_H

#include <stdint.h>

#if defined(__GNUC__)
#define KVP_API __attribute__((visibility("default")))
#else
#define KVP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t kvp_status;

/* LLM-DataDist's numbers */
#define KVP_SUCCESS              0x00000000U
#define KVP_FAILED               0xFFFFFFFFU /* no engine, closed engine, role rule, internal fault */
#define KVP_WAIT_PROC_TIMEOUT    0x5010B001U
#define KVP_CACHE_NOT_EXIST      0x5010B002U /* local or remote cache id unknown or released */
#define KVP_PARAM_INVALID        0x5010B005U /* an argument; the message names it */
#define KVP_NOT_YET_LINK         0x5010B007U /* no usable link to that cluster */
#define KVP_ALREADY_LINK         0x5010B008U
#define KVP_LINK_FAILED          0x5010B009U /* nobody listens, refused, or no transport in common */
#define KVP_UNLINK_FAILED        0x5010B00AU
#define KVP_NOTIFY_UNLINK_FAILED 0x5010B00BU /* peer could not be told; unlink there by hand */
#define KVP_CLUSTER_NUM_EXCEED   0x5010B00CU
#define KVP_PROCESSING_LINK      0x5010B00DU /* a link or unlink with that peer is under way */
#define KVP_DEVICE_OUT_OF_MEMORY 0x5010B00EU
#define KVP_EXIST_LINK           0x5010B018U
#define KVP_FEATURE_NOT_ENABLED  0x5010B019U /* needs a setting, or the path cannot do it */
#define KVP_TIMEOUT              0x5010B01AU /* the deadline passed; nothing moves any more */
#define KVP_LINK_BUSY            0x5010B01BU
#define KVP_OUT_OF_MEMORY        0x5010B01CU

/* kvpush's own */
#define KVP_STATUS_OWN     0x5010C000U
#define KVP_IN_PROGRESS    0x5010C001U /* kvp_transfer_test: no terminal status yet */
#define KVP_NO_EVENT       0x5010C002U /* kvp_event_poll: queue empty */
#define KVP_CANCELLED      0x5010C003U /* ended by kvp_transfer_cancel */
#define KVP_PEER_LOST      0x5010C004U /* the peer died or fell silent during the call */
#define KVP_PEER_RESTARTED 0x5010C005U /* the peer is a new process; link again */
#define KVP_NO_CREDIT      0x5010C006U /* the receiver takes no more; its events are not polled */
#define KVP_PROTOCOL       0x5010C007U /* peer speaks something else or another version */
#define KVP_ADDRESS        0x5010C008U /* address not local, in use, or malformed */
#define KVP_NO_TRANSPORT   0x5010C009U /* no transport of the list reaches the peer */
#define KVP_NO_RESOURCE    0x5010C00AU /* descriptors, threads, cores, or the system said no */
#define KVP_QUEUE_FULL     0x5010C00BU /* too many transfers in flight on a lane */

/* Name of `status` without prefix ("PARAM_INVALID"); "UNKNOWN" for others. [any thread] */
KVP_API const char *
kvp_status_name(kvp_status status);

/*
 * The calling thread's last failure as one line without newline, never NULL.
 * Valid until this thread's next kvpush call that fails. [any thread]
 */
KVP_API const char *
kvp_error_message(void);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_STATUS_H */
