/* SPDX-License-Identifier: Apache-2.0 */
#include "histogram.h"

#define SUB_BUCKET_BITS 5

uint32_t pt_histogram_bucket(uint64_t value)
{
    if (value < UINT64_C(1) << SUB_BUCKET_BITS)
        return (uint32_t)value;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(value) - SUB_BUCKET_BITS;
    return (octave << SUB_BUCKET_BITS) + (uint32_t)(value >> octave);
}
