/* SPDX-License-Identifier: Apache-2.0 */
/* The cache is a set of positions: that of the next use of every resident that has one.  An access
 * hits when its own position is in the set, and the victim is the greatest position.  Residents
 * without a next use are not kept account of: they go before all others and can never hit. */
#include <stdlib.h>

#include "sim_bitset.h"
#include "sim_policy.h"

/* Accesses until which a line is asked for. */
enum { AHEAD = 16 };

struct belady {
    struct pt_bitset due;
    uint32_t *next; /* position of the next use by the same part; 0 = none */
    uint32_t *seen; /* position + 1 at which an object was met last, going backwards */
    uint64_t size;  /* of the objects in `due` */
};

static void close_belady(void *state)
{
    struct belady *belady = state;

    pt_bitset_close(&belady->due);
    free(belady->next);
    free(belady->seen);
    free(belady);
}

static void *open_belady(const struct pt_sim_stream *stream)
{
    struct belady *belady = calloc(1, sizeof(*belady));

    if (belady == NULL)
        return NULL;
    belady->next = malloc((stream->num_accesses + 1) * sizeof(*belady->next));
    belady->seen = calloc((uint64_t)stream->num_objects + 1, sizeof(*belady->seen));
    if (belady->next != NULL && belady->seen != NULL &&
        pt_bitset_open(&belady->due, stream->num_accesses) == 0)
        return belady;
    close_belady(belady);
    return NULL;
}

/* Earlier parts were met at lower positions, and so cannot be taken for a next use. */
static void find_next(struct belady *belady, const uint32_t *objects, uint64_t begin, uint64_t end)
{
    for (uint64_t i = end; i-- > begin;) {
        if (i >= begin + AHEAD)
            __builtin_prefetch(&belady->seen[objects[i - AHEAD]], 1);

        uint32_t seen = belady->seen[objects[i]];

        belady->next[i] = seen > i ? seen - 1 : 0;
        belady->seen[objects[i]] = (uint32_t)i + 1;
    }
}

static void drop(struct belady *belady, const struct pt_sim_part *part, uint64_t position)
{
    pt_bitset_remove(&belady->due, position);
    belady->size -= pt_sim_size(part->stream, part->stream->objects[position]);
}

/* Drops what is used last until no more than `capacity` is left. */
static void shrink(struct belady *belady, const struct pt_sim_part *part, uint64_t capacity)
{
    while (belady->size > capacity)
        drop(belady, part, pt_bitset_greatest(&belady->due));
}

/* Keeps the object of access i until its next use. */
static void keep(struct belady *belady, const struct pt_sim_part *part, uint64_t i)
{
    uint64_t size = pt_sim_size(part->stream, part->stream->objects[i]);

    if (belady->next[i] == 0 || size > part->capacity)
        return;
    pt_bitset_add(&belady->due, belady->next[i]);
    belady->size += size;
}

static uint8_t classify(struct belady *belady, const struct pt_sim_part *part, uint64_t i)
{
    if (!pt_bitset_has(&belady->due, i))
        return 0;
    drop(belady, part, i);
    return 1;
}

static void ask_for(const struct belady *belady, const struct pt_sim_part *part, uint64_t i)
{
    if (i + AHEAD < part->end_group)
        __builtin_prefetch(&belady->due.level[0][belady->next[i + AHEAD] / 64], 1);
}

static void run_accesses(struct belady *belady, const struct pt_sim_part *part, uint8_t *hit)
{
    for (uint64_t i = part->first_group; i < part->end_group; i++) {
        ask_for(belady, part, i);
        hit[i] = classify(belady, part, i);
        keep(belady, part, i);
        shrink(belady, part, part->capacity);
    }
}

static void run_events(struct belady *belady, const struct pt_sim_part *part, uint8_t *hit)
{
    for (uint64_t group = part->first_group; group < part->end_group; group++) {
        uint64_t begin = part->stream->group_start[group];
        uint64_t end = part->stream->group_start[group + 1];

        for (uint64_t i = begin; i < end; i++)
            hit[i] = classify(belady, part, i);
        for (uint64_t i = begin; i < end; i++)
            keep(belady, part, i);
        shrink(belady, part, part->capacity);
    }
}

static void run_belady(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    const struct pt_sim_stream *stream = part->stream;

    find_next(state, stream->objects, pt_sim_access(stream, part->first_group),
              pt_sim_access(stream, part->end_group));
    if (stream->group_start != NULL)
        run_events(state, part, hit);
    else
        run_accesses(state, part, hit);
    shrink(state, part, 0);
}

const struct pt_sim_policy pt_sim_belady = {open_belady, run_belady, close_belady};

/* ---- Every newcomer is admitted ---- */

/* The group's misses together, or capacity + 1 when they do not fit. */
static uint64_t size_of_misses(const struct pt_sim_part *part, uint64_t begin, uint64_t end,
                               const uint8_t *hit)
{
    uint64_t size = 0;

    for (uint64_t i = begin; i < end && size <= part->capacity; i++) {
        uint64_t one = pt_sim_size(part->stream, part->stream->objects[i]);

        if (!hit[i] && one <= part->capacity)
            size += one;
    }
    return size <= part->capacity ? size : part->capacity + 1;
}

static void run_forced_accesses(struct belady *belady, const struct pt_sim_part *part,
                                uint8_t *hit)
{
    for (uint64_t i = part->first_group; i < part->end_group; i++) {
        uint64_t size = pt_sim_size(part->stream, part->stream->objects[i]);

        ask_for(belady, part, i);
        hit[i] = classify(belady, part, i);
        if (!hit[i] && size <= part->capacity)
            shrink(belady, part, part->capacity - size);
        keep(belady, part, i);
    }
}

static void run_forced_event(struct belady *belady, const struct pt_sim_part *part, uint64_t group,
                             uint8_t *hit)
{
    uint64_t begin = pt_sim_access(part->stream, group);
    uint64_t end = pt_sim_access(part->stream, group + 1);

    for (uint64_t i = begin; i < end; i++)
        hit[i] = classify(belady, part, i);
    for (uint64_t i = begin; i < end; i++)
        if (hit[i])
            keep(belady, part, i);

    uint64_t needed = size_of_misses(part, begin, end, hit);

    /* Misses that fit displace what is used last; those that do not displace all but themselves. */
    shrink(belady, part, needed > part->capacity ? 0 : part->capacity - needed);
    for (uint64_t i = begin; i < end; i++)
        if (!hit[i])
            keep(belady, part, i);
    shrink(belady, part, part->capacity);
}

static void run_belady_forced(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    struct belady *belady = state;
    const struct pt_sim_stream *stream = part->stream;

    find_next(belady, stream->objects, pt_sim_access(stream, part->first_group),
              pt_sim_access(stream, part->end_group));
    if (stream->group_start == NULL)
        run_forced_accesses(belady, part, hit);
    else
        for (uint64_t group = part->first_group; group < part->end_group; group++)
            run_forced_event(belady, part, group, hit);
    shrink(belady, part, 0);
}

const struct pt_sim_policy pt_sim_belady_forced = {open_belady, run_belady_forced, close_belady};
