/* SPDX-License-Identifier: Apache-2.0 */
/* kvpush.h - everything; see README.md for a complete program */
#ifndef KVPUSH_KVPUSH_H
#define KVPUSH_KVPUSH_H

#include "cache.h"
#include "copy.h"
#include "doctor.h"
#include "engine.h"
#include "event.h"
#include "link.h"
#include "plan.h"
#include "stats.h"
#include "status.h"
#include "transfer.h"

#endif /* KVPUSH_KVPUSH_H */
