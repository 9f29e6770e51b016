/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy of the simulator is, and the replay that list-keeping policies share. */
#ifndef PAGETIER_SIM_POLICY_H
#define PAGETIER_SIM_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim.h"

/* The replay loops are written once and specialised by constant arguments: no branch on the kind of
 * replay and no indirect call is left in them. */
#define PT_SPECIALISED static inline __attribute__((always_inline))

/* One cold cache: the groups [first_group, end_group) of a stream. */
struct pt_sim_part {
    const struct pt_sim_stream *stream;
    uint64_t first_group;
    uint64_t end_group;
    uint64_t capacity;
};

struct pt_sim_policy {
    /* State for a whole stream; NULL without memory. */
    void *(*open)(const struct pt_sim_stream *stream);
    /* Replays one part and leaves the state as it was opened. */
    void (*run)(void *state, const struct pt_sim_part *part, uint8_t *hit);
    void (*close)(void *state);
};

extern const struct pt_sim_policy pt_sim_lru;
extern const struct pt_sim_policy pt_sim_lfu;
extern const struct pt_sim_policy pt_sim_lfu_in_cache;
extern const struct pt_sim_policy pt_sim_lfru;
extern const struct pt_sim_policy pt_sim_least_stale;
extern const struct pt_sim_policy pt_sim_belady;
extern const struct pt_sim_policy pt_sim_belady_forced;
extern const struct pt_sim_policy pt_sim_arc;
extern const struct pt_sim_policy pt_sim_s3fifo;
extern const struct pt_sim_policy pt_sim_sieve;

/* -EINVAL unless starts ascend to the end, ids lie in range and a group's members are distinct;
 * -ENOMEM when that cannot be found out. */
int pt_sim_check(const struct pt_sim_stream *stream);

static inline uint64_t pt_sim_access(const struct pt_sim_stream *stream, uint64_t group)
{
    return stream->group_start != NULL ? stream->group_start[group] : group;
}

static inline uint64_t pt_sim_size(const struct pt_sim_stream *stream, uint32_t object)
{
    return stream->object_size != NULL ? stream->object_size[object] : 1;
}

static inline uint64_t pt_sim_time(const struct pt_sim_stream *stream, uint64_t group)
{
    return stream->group_time != NULL ? stream->group_time[group] : group;
}

static inline uint32_t pt_sim_rank(const struct pt_sim_stream *stream, uint32_t object)
{
    return stream->object_rank != NULL ? stream->object_rank[object] : object;
}

typedef bool pt_sim_resident(void *state, uint32_t object);
typedef void pt_sim_use(void *state, const struct pt_sim_part *part, uint32_t object);

/* Hits are touched, then misses admitted, each group as a whole. */
PT_SPECIALISED void pt_sim_replay(void *state, const struct pt_sim_part *part, uint8_t *hit,
                                  pt_sim_resident *resident, pt_sim_use *touch, pt_sim_use *admit)
{
    const struct pt_sim_stream *stream = part->stream;
    const uint32_t *objects = stream->objects;

    if (stream->group_start == NULL) {
        for (uint64_t i = part->first_group; i < part->end_group; i++) {
            hit[i] = resident(state, objects[i]);
            if (hit[i])
                touch(state, part, objects[i]);
            else
                admit(state, part, objects[i]);
        }
        return;
    }
    for (uint64_t group = part->first_group; group < part->end_group; group++) {
        uint64_t begin = stream->group_start[group], end = stream->group_start[group + 1];

        for (uint64_t i = begin; i < end; i++)
            hit[i] = resident(state, objects[i]);
        for (uint64_t i = begin; i < end; i++)
            if (hit[i])
                touch(state, part, objects[i]);
        for (uint64_t i = begin; i < end; i++)
            if (!hit[i])
                admit(state, part, objects[i]);
    }
}

#endif
