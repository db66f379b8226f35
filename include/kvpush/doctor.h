/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h - what this machine lets an engine do, before one is opened
 */
#ifndef KVPUSH_DOCTOR_H
#define KVPUSH_DOCTOR_H

#include <stddef.h>

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Look at everything that `config` needs and write one finding per line into `text` (cut to `size`, always
 * with its NUL): "ok", "note" or "BAD", what was found, and for the last two what to change. Looks at
 * each transport of the list (devices, ports and GIDs taken or not, and why), the limit of locked memory,
 * control groups, huge pages and cores. Opens devices for a moment; leaves nothing. [any thread]
 * SUCCESS: an engine would open with all of it. NO_TRANSPORT: something asked for is not usable (the lines
 * say what). PARAM_INVALID: NULL, size 0, or `config` is not valid.
 */
KVP_API kvp_status
kvp_doctor(const struct kvp_config *config, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_DOCTOR_H */
