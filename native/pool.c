/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <errno.h>
#include <stdio.h>

#include "check.h"

int pt_fail(struct pt_fault *fault, int result, const char *call, uint32_t file, uint64_t offset)
{
    snprintf(fault->call, sizeof fault->call, "%s", call);
    fault->file = file;
    fault->offset = offset;
    return result;
}

int pt_invalid(struct pt_fault *fault, const char *array, uint64_t index)
{
    return pt_fail(fault, -EINVAL, array, PT_NONE, index);
}

int pt_check_bounds(const uint64_t *bounds, uint64_t count, uint64_t end, const char *array,
                    struct pt_fault *fault)
{
    if (bounds[0] != 0)
        return pt_invalid(fault, array, 0);
    for (uint64_t i = 0; i < count; i++)
        if (bounds[i + 1] < bounds[i])
            return pt_invalid(fault, array, i + 1);
    return bounds[count] == end ? 0 : pt_invalid(fault, array, count);
}

int pt_pool_check(const struct pt_pool *pool, struct pt_fault *fault)
{
    for (uint64_t i = 0; i < pool->num_extents; i++) {
        const struct pt_extent *extent = &pool->extents[i];

        if (extent->file >= pool->num_files || extent->length > INT64_MAX ||
            extent->offset > INT64_MAX - extent->length)
            return pt_invalid(fault, "extents", i);
    }
    return pt_check_bounds(pool->expert_start, pool->num_experts, pool->num_extents,
                           "expert_start", fault);
}

uint64_t pt_pool_expert_bytes(const struct pt_pool *pool, uint32_t expert)
{
    uint64_t bytes = 0;

    for (uint64_t i = pool->expert_start[expert]; i < pool->expert_start[expert + 1]; i++)
        bytes += pool->extents[i].length;
    return bytes;
}

int pt_pool_largest_expert(const struct pt_pool *pool, uint64_t *bytes, struct pt_fault *fault)
{
    *bytes = 0;
    for (uint32_t e = 0; e < pool->num_experts; e++) {
        uint64_t length = 0;

        for (uint64_t i = pool->expert_start[e]; i < pool->expert_start[e + 1]; i++)
            if (__builtin_add_overflow(length, pool->extents[i].length, &length) ||
                length > INT64_MAX)
                return pt_invalid(fault, "extents", i);
        if (*bytes < length)
            *bytes = length;
    }
    return 0;
}
