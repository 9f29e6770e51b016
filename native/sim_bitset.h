/* SPDX-License-Identifier: Apache-2.0 */
/* A set of numbers below a bound, with its least and its greatest in a handful of steps: a bit per
 * number, and above every 64 words a word that says which of them are not zero. */
#ifndef PAGETIER_SIM_BITSET_H
#define PAGETIER_SIM_BITSET_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define PT_BITSET_LEVELS 6 /* 64^6 > 2^32 */

struct pt_bitset {
    uint64_t *level[PT_BITSET_LEVELS];
    int top;
};

static inline void pt_bitset_close(struct pt_bitset *set)
{
    for (int level = 0; level < PT_BITSET_LEVELS; level++) {
        free(set->level[level]);
        set->level[level] = NULL;
    }
}

/* An empty set of numbers below `bound`; 0 or -ENOMEM. */
static inline int pt_bitset_open(struct pt_bitset *set, uint64_t bound)
{
    *set = (struct pt_bitset){.top = -1};
    do {
        bound = bound / 64 + 1;
        set->level[++set->top] = calloc(bound, sizeof(uint64_t));
        if (set->level[set->top] == NULL) {
            pt_bitset_close(set);
            return -ENOMEM;
        }
    } while (bound > 1);
    return 0;
}

static inline bool pt_bitset_has(const struct pt_bitset *set, uint64_t number)
{
    return set->level[0][number / 64] >> number % 64 & 1;
}

static inline void pt_bitset_add(struct pt_bitset *set, uint64_t number)
{
    for (int level = 0; level <= set->top; level++, number /= 64) {
        uint64_t word = set->level[level][number / 64];

        set->level[level][number / 64] = word | UINT64_C(1) << number % 64;
        if (word != 0)
            return;
    }
}

static inline void pt_bitset_remove(struct pt_bitset *set, uint64_t number)
{
    for (int level = 0; level <= set->top; level++, number /= 64)
        if ((set->level[level][number / 64] &= ~(UINT64_C(1) << number % 64)) != 0)
            return;
}

static inline bool pt_bitset_empty(const struct pt_bitset *set)
{
    return set->level[set->top][0] == 0;
}

/* The set must not be empty. */
static inline uint64_t pt_bitset_greatest(const struct pt_bitset *set)
{
    uint64_t word = 0;

    for (int level = set->top; level >= 0; level--)
        word = word * 64 + 63 - (uint64_t)__builtin_clzll(set->level[level][word]);
    return word;
}

/* The set must not be empty. */
static inline uint64_t pt_bitset_least(const struct pt_bitset *set)
{
    uint64_t word = 0;

    for (int level = set->top; level >= 0; level--)
        word = word * 64 + (uint64_t)__builtin_ctzll(set->level[level][word]);
    return word;
}

/* The least member above `number`, or UINT64_MAX. */
static inline uint64_t pt_bitset_above(const struct pt_bitset *set, uint64_t number)
{
    for (int level = 0; level <= set->top; level++, number /= 64) {
        uint64_t bit = number % 64;
        uint64_t rest = bit == 63 ? 0 : set->level[level][number / 64] >> (bit + 1);

        if (rest == 0)
            continue;
        number += 1 + (uint64_t)__builtin_ctzll(rest);
        while (level-- > 0)
            number = number * 64 + (uint64_t)__builtin_ctzll(set->level[level][number]);
        return number;
    }
    return UINT64_MAX;
}

#endif
