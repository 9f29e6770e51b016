/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_counts.h"

static void *open_lfu(const struct pt_sim_stream *stream)
{
    struct pt_counts *counts = malloc(sizeof(*counts));

    if (counts != NULL && pt_counts_open(counts, stream) == 0)
        return counts;
    free(counts);
    return NULL;
}

static void close_lfu(void *state)
{
    pt_counts_close(state);
    free(state);
}

static void shrink(struct pt_counts *counts, const struct pt_sim_part *part, uint64_t capacity)
{
    while (counts->size > capacity) {
        uint32_t victim = pt_counts_least(counts);

        pt_counts_evict(counts, victim, pt_sim_size(part->stream, victim));
    }
}

static void run_accesses(struct pt_counts *counts, const struct pt_sim_part *part, uint8_t *hit)
{
    const struct pt_sim_stream *stream = part->stream;

    for (uint64_t i = part->first_group; i < part->end_group; i++) {
        uint32_t object = stream->objects[i];
        uint64_t size = pt_sim_size(stream, object);

        hit[i] = (uint8_t)counts->objects[object].resident;
        if (hit[i]) {
            pt_counts_touch(counts, object);
        } else if (size <= part->capacity) {
            shrink(counts, part, part->capacity - size);
            pt_counts_admit(counts, object, size);
        }
    }
}

static void run_events(struct pt_counts *counts, const struct pt_sim_part *part, uint8_t *hit)
{
    const struct pt_sim_stream *stream = part->stream;

    for (uint64_t group = part->first_group; group < part->end_group; group++) {
        for (uint64_t i = stream->group_start[group]; i < stream->group_start[group + 1]; i++) {
            uint32_t object = stream->objects[i];
            uint64_t size = pt_sim_size(stream, object);

            hit[i] = (uint8_t)counts->objects[object].resident;
            if (hit[i])
                pt_counts_touch(counts, object);
            else if (size <= part->capacity)
                pt_counts_admit(counts, object, size);
        }
        shrink(counts, part, part->capacity);
    }
}

static void run_lfu(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    if (part->stream->group_start != NULL)
        run_events(state, part, hit);
    else
        run_accesses(state, part, hit);
    pt_counts_reset(state, part);
}

const struct pt_sim_policy pt_sim_lfu = {open_lfu, run_lfu, close_lfu};

/* ---- The same with counts that an eviction forgets ---- */

static bool resident(void *state, uint32_t object)
{
    return ((struct pt_counts *)state)->objects[object].resident;
}

static void touch(void *state, const struct pt_sim_part *part, uint32_t object)
{
    (void)part;
    pt_counts_touch(state, object);
}

static void admit(void *state, const struct pt_sim_part *part, uint32_t object)
{
    uint64_t size = pt_sim_size(part->stream, object);

    if (size > part->capacity)
        return;
    shrink(state, part, part->capacity - size);
    ((struct pt_counts *)state)->objects[object].count = 0;
    pt_counts_admit(state, object, size);
}

static void run_lfu_in_cache(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    pt_sim_replay(state, part, hit, resident, touch, admit);
    pt_counts_reset(state, part);
}

const struct pt_sim_policy pt_sim_lfu_in_cache = {open_lfu, run_lfu_in_cache, close_lfu};
