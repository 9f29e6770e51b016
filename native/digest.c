/* SPDX-License-Identifier: Apache-2.0 */
#include "digest.h"

#include <string.h>

#define PRIME_1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME_3 UINT64_C(0x165667B19E3779F9)
#define PRIME_4 UINT64_C(0x85EBCA77C2B2AE63)
#define PRIME_5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t rotate(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

static uint64_t load(const unsigned char *bytes, size_t length)
{
    uint64_t word = 0;

    memcpy(&word, bytes, length);
    return word;
}

static uint64_t mix(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * PRIME_2, 31) * PRIME_1;
}

static uint64_t merge(uint64_t hash, uint64_t lane)
{
    return (hash ^ mix(0, lane)) * PRIME_1 + PRIME_4;
}

/* All stripes of 32 bytes, of which there is at least one. */
static uint64_t stripes(const unsigned char **bytes, const unsigned char *end, uint64_t seed)
{
    uint64_t lane[4] = {seed + PRIME_1 + PRIME_2, seed + PRIME_2, seed, seed - PRIME_1};
    const unsigned char *at = *bytes;

    for (; end - at >= 32; at += 32)
        for (int i = 0; i < 4; i++)
            lane[i] = mix(lane[i], load(at + 8 * i, 8));
    *bytes = at;
    uint64_t hash =
        rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
    for (int i = 0; i < 4; i++)
        hash = merge(hash, lane[i]);
    return hash;
}

static uint64_t avalanche(uint64_t hash)
{
    hash = (hash ^ hash >> 33) * PRIME_2;
    hash = (hash ^ hash >> 29) * PRIME_3;
    return hash ^ hash >> 32;
}

uint64_t pt_digest(const void *bytes, size_t length, uint64_t seed)
{
    const unsigned char *at = bytes;
    const unsigned char *end = at + length;
    uint64_t hash = length >= 32 ? stripes(&at, end, seed) : seed + PRIME_5;

    hash += length;
    for (; end - at >= 8; at += 8)
        hash = rotate(hash ^ mix(0, load(at, 8)), 27) * PRIME_1 + PRIME_4;
    if (end - at >= 4) {
        hash = rotate(hash ^ load(at, 4) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        at += 4;
    }
    for (; at < end; at++)
        hash = rotate(hash ^ *at * PRIME_5, 11) * PRIME_1;
    return avalanche(hash);
}
