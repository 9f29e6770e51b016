/* SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "preload.h"
#include "residency.h"

#define NOWHERE UINT64_MAX
/* Touched and locked at a time: how long a cancel may take, and how far a failure is told. */
#define STEP_BYTES (UINT64_C(16) << 20)

struct pt_arena {
    const struct pt_pool *pool;
    uint32_t *experts; /* held, in the order given */
    uint64_t num_experts;
    uint64_t *start; /* of each expert of the pool in the region, or NOWHERE */
    unsigned char *region;
    uint64_t region_bytes;
    bool loaded;
    _Atomic uint64_t progress;
    _Atomic uint32_t cancelled;
};

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static int lay_out(struct pt_arena *arena, struct pt_fault *fault)
{
    uint64_t bytes = 0;

    for (uint32_t e = 0; e < arena->pool->num_experts; e++)
        arena->start[e] = NOWHERE;
    for (uint64_t i = 0; i < arena->num_experts; i++) {
        uint32_t expert = arena->experts[i];

        if (expert >= arena->pool->num_experts || arena->start[expert] != NOWHERE)
            return pt_invalid(fault, "experts", i);
        uint64_t length = pt_pool_expert_bytes(arena->pool, expert);
        if (length > INT64_MAX - PT_ARENA_SLOT_BYTES || bytes > INT64_MAX - length)
            return pt_invalid(fault, "experts", i);
        arena->start[expert] = bytes;
        bytes = round_up(bytes + length, PT_ARENA_SLOT_BYTES);
    }
    arena->region_bytes = round_up(bytes, pt_page_bytes());
    return 0;
}

/* A kernel without huge pages (EINVAL) makes none. */
static int advise_huge_pages(const struct pt_arena *arena, bool wanted)
{
    int advice = wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;

    if (madvise(arena->region, arena->region_bytes, advice) < 0 && (wanted || errno != EINVAL))
        return -errno;
    return 0;
}

static int map_region(struct pt_arena *arena, bool huge_pages, struct pt_fault *fault)
{
    if (arena->region_bytes == 0)
        return 0;
    void *region = mmap(NULL, arena->region_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return pt_fail(fault, -errno, "mmap", PT_NONE, 0);
    arena->region = region;
    int result = advise_huge_pages(arena, huge_pages);
    if (result == 0 && madvise(region, arena->region_bytes, MADV_DONTDUMP) < 0)
        result = -errno;
    return result < 0 ? pt_fail(fault, result, "madvise", PT_NONE, 0) : 0;
}

static int allocate(struct pt_arena *arena, const uint32_t *experts)
{
    size_t num_experts = arena->num_experts;

    arena->experts = calloc(num_experts + 1, sizeof *arena->experts);
    arena->start = calloc((size_t)arena->pool->num_experts + 1, sizeof *arena->start);
    if (!arena->experts || !arena->start)
        return -ENOMEM;
    if (num_experts > 0)
        memcpy(arena->experts, experts, num_experts * sizeof *experts);
    return 0;
}

int pt_arena_open(const struct pt_pool *pool, const uint32_t *experts, uint64_t num_experts,
                  uint32_t huge_pages, struct pt_arena **arena, struct pt_fault *fault)
{
    *fault = (struct pt_fault){.file = PT_NONE, .expert = PT_NONE};
    int result = pt_pool_check(pool, fault);
    if (result < 0)
        return result;
    struct pt_arena *made = calloc(1, sizeof *made);
    if (!made)
        return pt_fail(fault, -ENOMEM, "calloc", PT_NONE, 0);
    made->pool = pool;
    made->num_experts = num_experts;
    result = allocate(made, experts);
    if (result < 0)
        pt_fail(fault, result, "calloc", PT_NONE, 0);
    if (result == 0)
        result = lay_out(made, fault);
    if (result == 0)
        result = map_region(made, huge_pages != 0, fault);
    if (result < 0) {
        pt_arena_close(made);
        return result;
    }
    *arena = made;
    return 0;
}

static void touch(unsigned char *start, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += pt_page_bytes())
        *(volatile unsigned char *)(start + at) = 0;
}

int pt_arena_lock(struct pt_arena *arena, struct pt_fault *fault)
{
    *fault = (struct pt_fault){.file = PT_NONE, .expert = PT_NONE};
    for (uint64_t at = 0; at < arena->region_bytes; at += STEP_BYTES) {
        uint64_t left = arena->region_bytes - at;
        uint64_t step = left < STEP_BYTES ? left : STEP_BYTES;

        if (atomic_load(&arena->cancelled))
            return pt_fail(fault, -ECANCELED, "arena", PT_NONE, at);
        touch(arena->region + at, step);
        if (mlock(arena->region + at, step) < 0)
            return pt_fail(fault, -errno, "mlock", PT_NONE, at);
        atomic_store(&arena->progress, at + step);
    }
    return 0;
}

int pt_arena_preload(struct pt_arena *arena, struct pt_preload *preload, struct pt_fault *fault)
{
    const struct pt_loading loading = {
        .pool = arena->pool,
        .experts = arena->experts,
        .num_experts = arena->num_experts,
        .start = arena->start,
        .region = arena->region,
        .progress = &arena->progress,
        .cancelled = &arena->cancelled,
    };

    atomic_store(&arena->progress, 0);
    int result = pt_preload(&loading, preload, fault);
    if (result < 0)
        return result;
    if (arena->region && mprotect(arena->region, arena->region_bytes, PROT_READ) < 0)
        return pt_fail(fault, -errno, "mprotect", PT_NONE, 0);
    arena->loaded = true;
    return 0;
}

uint64_t pt_arena_bytes(const struct pt_arena *arena)
{
    return arena->region_bytes;
}

const unsigned char *pt_arena_find(const struct pt_arena *arena, uint32_t expert)
{
    uint64_t start = arena->start[expert];

    return start == NOWHERE || !arena->loaded ? NULL : arena->region + start;
}

uint64_t pt_arena_progress(const struct pt_arena *arena)
{
    return atomic_load(&arena->progress);
}

void pt_arena_cancel(struct pt_arena *arena)
{
    atomic_store(&arena->cancelled, 1);
}

void pt_arena_close(struct pt_arena *arena)
{
    if (arena->region) /* and with that unlock */
        munmap(arena->region, arena->region_bytes);
    free(arena->start);
    free(arena->experts);
    free(arena);
}
