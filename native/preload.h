/* SPDX-License-Identifier: Apache-2.0 */
/* Reads experts into an arena past the page cache. */
#ifndef PAGETIER_PRELOAD_H
#define PAGETIER_PRELOAD_H

#include <stdatomic.h>
#include <stdint.h>

#include "arena.h"

struct pt_loading {
    const struct pt_pool *pool;
    const uint32_t *experts; /* to load */
    uint64_t num_experts;
    const uint64_t *start; /* of each expert of the pool in the region */
    unsigned char *region;
    _Atomic uint64_t *progress; /* bytes loaded */
    _Atomic uint32_t *cancelled;
};

int pt_preload(const struct pt_loading *loading, struct pt_preload *preload,
               struct pt_fault *fault);

#endif
