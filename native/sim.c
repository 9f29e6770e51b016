/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>

#include "sim_policy.h"

static const struct pt_sim_policy *const policies[] = {
    [PT_SIM_LRU] = &pt_sim_lru,
    [PT_SIM_LFU] = &pt_sim_lfu,
    [PT_SIM_LFU_IN_CACHE] = &pt_sim_lfu_in_cache,
    [PT_SIM_LFRU] = &pt_sim_lfru,
    [PT_SIM_LEAST_STALE] = &pt_sim_least_stale,
    [PT_SIM_BELADY] = &pt_sim_belady,
    [PT_SIM_BELADY_FORCED] = &pt_sim_belady_forced,
    [PT_SIM_ARC] = &pt_sim_arc,
    [PT_SIM_S3FIFO] = &pt_sim_s3fifo,
    [PT_SIM_SIEVE] = &pt_sim_sieve,
};

static int check_starts(const uint64_t *start, uint64_t count, uint64_t end)
{
    if (start[0] != 0 || start[count] != end)
        return -EINVAL;
    for (uint64_t i = 0; i < count; i++)
        if (start[i] > start[i + 1])
            return -EINVAL;
    return 0;
}

static int check_distinct(const struct pt_sim_stream *stream, uint64_t num_groups)
{
    uint64_t *seen = calloc((uint64_t)stream->num_objects + 1, sizeof(*seen));
    int result = 0;

    if (seen == NULL)
        return -ENOMEM;
    for (uint64_t group = 0; group < num_groups; group++)
        for (uint64_t i = stream->group_start[group]; i < stream->group_start[group + 1]; i++) {
            if (seen[stream->objects[i]] == group + 1)
                result = -EINVAL;
            seen[stream->objects[i]] = group + 1;
        }
    free(seen);
    return result;
}

/* Sizes are at least 1, and all of them together can be counted: in `total`. */
static int add_sizes(const struct pt_sim_stream *stream, uint64_t *total)
{
    *total = 0;
    for (uint32_t object = 0; object < stream->num_objects; object++)
        if (pt_sim_size(stream, object) == 0 ||
            __builtin_add_overflow(*total, pt_sim_size(stream, object), total))
            return -EINVAL;
    return 0;
}

int pt_sim_check(const struct pt_sim_stream *stream)
{
    uint64_t num_groups = stream->part_start[stream->num_parts];
    uint32_t greatest = 0;

    /* Positions are kept in 32 bits, with 0 for "none". */
    if (stream->num_accesses >= UINT32_MAX || stream->num_objects == UINT32_MAX)
        return -EINVAL;
    if (stream->group_start == NULL && num_groups != stream->num_accesses)
        return -EINVAL;
    if (check_starts(stream->part_start, stream->num_parts, num_groups) != 0)
        return -EINVAL;
    for (uint64_t i = 0; i < stream->num_accesses; i++)
        greatest = stream->objects[i] > greatest ? stream->objects[i] : greatest;
    if (stream->num_accesses > 0 && greatest >= stream->num_objects)
        return -EINVAL;
    if (stream->group_start == NULL)
        return 0;
    if (check_starts(stream->group_start, num_groups, stream->num_accesses) != 0)
        return -EINVAL;
    return check_distinct(stream, num_groups);
}

int pt_sim_run(uint32_t policy, const struct pt_sim_stream *stream, uint8_t *hit)
{
    uint64_t total;
    int result = pt_sim_check(stream);

    if (result == 0)
        result = add_sizes(stream, &total);
    if (result != 0)
        return result;
    if (policy >= sizeof(policies) / sizeof(policies[0]))
        return -EINVAL;
    if (policy == PT_SIM_ARC && stream->object_size != NULL)
        return -EINVAL;

    void *state = policies[policy]->open(stream);

    if (state == NULL)
        return -ENOMEM;
    for (uint64_t i = 0; i < stream->num_parts; i++) {
        struct pt_sim_part part = {
            .stream = stream,
            .first_group = stream->part_start[i],
            .end_group = stream->part_start[i + 1],
            /* A cache of everything is as good as a larger one, and sums with it stay in range. */
            .capacity = stream->capacity[i] < total ? stream->capacity[i] : total,
        };

        policies[policy]->run(state, &part, hit);
    }
    policies[policy]->close(state);
    return 0;
}
