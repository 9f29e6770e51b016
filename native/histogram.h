/* SPDX-License-Identifier: Apache-2.0 */
/* Log-linear histogram of durations: exact below 32 ns, then 32 buckets per octave. */
#ifndef PAGETIER_HISTOGRAM_H
#define PAGETIER_HISTOGRAM_H

#include <stdint.h>

#define PT_SUB_BUCKET_BITS 5

static inline uint32_t pt_histogram_bucket(uint64_t value)
{
    const uint64_t sub_buckets = UINT64_C(1) << PT_SUB_BUCKET_BITS;

    if (value < sub_buckets)
        return (uint32_t)value;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(value) - PT_SUB_BUCKET_BITS;
    return (octave << PT_SUB_BUCKET_BITS) + (uint32_t)(value >> octave);
}

#endif
