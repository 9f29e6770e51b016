/* SPDX-License-Identifier: Apache-2.0 */
/* Experts held in one locked, anonymous region.  The order is open, lock, preload: what cannot be
 * locked fails before anything is read. */
#ifndef PAGETIER_ARENA_H
#define PAGETIER_ARENA_H

#include <stdint.h>

#include "pool.h"

/* Each expert starts on a cache line: a copy runs at full speed, and at most 63 bytes are lost. */
#define PT_ARENA_SLOT_BYTES 64

struct pt_arena;

/* What a preload read. */
struct pt_preload {
    uint64_t ns;
    uint64_t bytes;           /* of the experts */
    uint64_t direct_bytes;    /* of these, from files that give O_DIRECT */
    uint64_t over_read_bytes; /* read by O_DIRECT around extents that are not aligned */
    int64_t admitted_bytes;   /* pages in the page cache afterwards, less those there before */
    int32_t residency;        /* 0, or the -errno for which admitted_bytes is not known */
    int32_t pad;
};

/* Maps the region, not yet a page of it touched.  The pool must outlive the arena.  -EINVAL: an
 * expert that the pool does not have, or has been named before. */
int pt_arena_open(const struct pt_pool *pool, const uint32_t *experts, uint64_t num_experts,
                  uint32_t huge_pages, struct pt_arena **arena, struct pt_fault *fault);
/* Touches every page, then locks the region, a step at a time.  A failure leaves what is locked to
 * pt_arena_close; fault.offset is the byte of the region. */
int pt_arena_lock(struct pt_arena *arena, struct pt_fault *fault);
/* Reads the experts past the page cache: by O_DIRECT, or where a file system refuses it by buffered
 * reads whose pages are dropped again, those only that were absent before. */
int pt_arena_preload(struct pt_arena *arena, struct pt_preload *preload, struct pt_fault *fault);
/* Bytes of the region, whole pages. */
uint64_t pt_arena_bytes(const struct pt_arena *arena);
/* The bytes of an expert, or NULL: it is not in the arena, or not yet loaded. */
const unsigned char *pt_arena_find(const struct pt_arena *arena, uint32_t expert);
/* The next two may be called from any thread. */
uint64_t pt_arena_progress(const struct pt_arena *arena); /* bytes locked, and then preloaded */
void pt_arena_cancel(struct pt_arena *arena); /* for good: -ECANCELED within one step */
void pt_arena_close(struct pt_arena *arena);

#endif
