/* SPDX-License-Identifier: Apache-2.0 */
/* LRU without a list: the stream itself is the queue, from `tail` on.  An object is resident when its
 * last use lies there; a position whose object was used again since is skipped. */
#include <stdlib.h>

#include "sim_policy.h"

/* Accesses until which the line of an object is asked for: a mispredicted hit costs no wait then. */
enum { AHEAD = 16 };

struct lru {
    uint32_t *last; /* position + 1 of the last use */
};

static void *open_lru(const struct pt_sim_stream *stream)
{
    struct lru *lru = malloc(sizeof(*lru));

    if (lru == NULL)
        return NULL;
    lru->last = calloc((uint64_t)stream->num_objects + 1, sizeof(*lru->last));
    if (lru->last != NULL)
        return lru;
    free(lru);
    return NULL;
}

static void close_lru(void *state)
{
    struct lru *lru = state;

    free(lru->last);
    free(lru);
}

PT_SPECIALISED uint64_t size_of(const struct pt_sim_part *part, uint32_t object, bool sized)
{
    return sized ? part->stream->object_size[object] : 1;
}

/* Drops the least recently used until `used` fits; the new tail. */
PT_SPECIALISED uint64_t shrink(const struct pt_sim_part *part, const uint32_t *last, uint64_t tail,
                               uint64_t *used, bool sized)
{
    const uint32_t *objects = part->stream->objects;

    while (*used > part->capacity) {
        while (last[objects[tail]] != tail + 1)
            tail++;
        *used -= size_of(part, objects[tail++], sized);
    }
    return tail;
}

PT_SPECIALISED void replay(uint32_t *last, const struct pt_sim_part *part, uint8_t *hit,
                           bool events, bool sized)
{
    const struct pt_sim_stream *stream = part->stream;
    const uint32_t *objects = stream->objects;
    uint64_t begin = pt_sim_access(stream, part->first_group), tail = begin, used = 0;

    for (uint64_t group = part->first_group; group < part->end_group; group++) {
        uint64_t end = events ? stream->group_start[group + 1] : group + 1;

        /* The tail stands still within a group: the whole of it is held against what it found. */
        for (uint64_t i = begin; i < end; i++) {
            uint64_t size = size_of(part, objects[i], sized);
            bool found = last[objects[i]] > tail;

            if (i + AHEAD < part->stream->num_accesses)
                __builtin_prefetch(&last[objects[i + AHEAD]], 1);
            hit[i] = found;
            if (size > part->capacity)
                continue;
            used += found ? 0 : size;
            last[objects[i]] = (uint32_t)i + 1;
        }
        tail = shrink(part, last, tail, &used, sized);
        begin = end;
    }
}

/* Nothing is undone at the end: the positions of another part all lie behind this one's tail. */
static void run_lru(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    uint32_t *last = ((struct lru *)state)->last;
    bool sized = part->stream->object_size != NULL;

    if (part->stream->group_start != NULL)
        sized ? replay(last, part, hit, true, true) : replay(last, part, hit, true, false);
    else
        sized ? replay(last, part, hit, false, true) : replay(last, part, hit, false, false);
}

const struct pt_sim_policy pt_sim_lru = {open_lru, run_lru, close_lru};
