/* SPDX-License-Identifier: Apache-2.0 */
/* LRU stack distances: every object owns a bit at the slot of its last use, and its distance is the
 * number of bits from there on.  Kept beside the bits: how many lie before each word within its area
 * and before each area, so that a distance is one look-up and a bit that goes corrects a short run of
 * counters; a new bit is always the last.  When the slots run out the owned ones move together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim_policy.h"

enum { WORD_SLOTS = 64, AREA_WORDS = 128, AREA_SLOTS = WORD_SLOTS * AREA_WORDS };

/* Accesses until which the line of an object is asked for. */
enum { AHEAD = 16 };

#define NO_SLOT UINT32_MAX

struct slots {
    uint64_t *words;
    uint16_t *in_area;     /* bits before a word in its area */
    uint32_t *before_area; /* bits before an area */
    uint32_t *owner;       /* of a slot */
    uint32_t *slot;        /* of an object, or NO_SLOT */
    uint32_t num_areas;
    uint32_t next;
    uint32_t owned;
};

static void close_slots(struct slots *slots)
{
    free(slots->words);
    free(slots->in_area);
    free(slots->before_area);
    free(slots->owner);
    free(slots->slot);
}

static int open_slots(struct slots *slots, uint64_t num_objects)
{
    /* At least half of the slots are free after each move: a move costs a few steps per access. */
    uint64_t num_areas = 2 * num_objects / AREA_SLOTS + 2;

    if (num_areas * AREA_SLOTS >= NO_SLOT)
        return -EINVAL;
    *slots = (struct slots){
        .words = malloc(num_areas * AREA_WORDS * sizeof(*slots->words)),
        .in_area = malloc(num_areas * AREA_WORDS * sizeof(*slots->in_area)),
        .before_area = malloc(num_areas * sizeof(*slots->before_area)),
        .owner = malloc(num_areas * AREA_SLOTS * sizeof(*slots->owner)),
        .slot = malloc((num_objects + 1) * sizeof(*slots->slot)),
        .num_areas = (uint32_t)num_areas,
    };
    if (slots->words == NULL || slots->in_area == NULL || slots->before_area == NULL ||
        slots->owner == NULL || slots->slot == NULL) {
        close_slots(slots);
        return -ENOMEM;
    }
    memset(slots->slot, 0xff, (num_objects + 1) * sizeof(*slots->slot));
    return 0;
}

/* Counters behind the next slot hold nothing yet: they are set when it gets there. */
PT_SPECIALISED void take_next(struct slots *slots, uint32_t object)
{
    uint32_t slot = slots->next++, word = slot / WORD_SLOTS, area = slot / AREA_SLOTS;

    if (slot % AREA_SLOTS == 0)
        slots->before_area[area] = slots->owned;
    if (slot % WORD_SLOTS == 0) {
        slots->words[word] = 0;
        slots->in_area[word] = (uint16_t)(slots->owned - slots->before_area[area]);
    }
    slots->words[word] |= UINT64_C(1) << slot % WORD_SLOTS;
    slots->owner[slot] = object;
    slots->slot[object] = slot;
    slots->owned++;
}

PT_SPECIALISED void release(struct slots *slots, uint32_t slot)
{
    uint32_t area = slot / AREA_SLOTS, areas = (slots->next - 1) / AREA_SLOTS + 1;
    uint16_t *in_area = &slots->in_area[area * AREA_WORDS];
    uint16_t word = (uint16_t)(slot / WORD_SLOTS % AREA_WORDS);

    slots->words[slot / WORD_SLOTS] &= ~(UINT64_C(1) << slot % WORD_SLOTS);
    slots->owned--;
    /* The whole area, without a branch: the compiler turns this into a few vector operations. */
    for (uint16_t other = 0; other < AREA_WORDS; other++)
        in_area[other] = (uint16_t)(in_area[other] - (other > word));
    for (uint32_t other = area + 1; other < areas; other++)
        slots->before_area[other]--;
}

static void move_together(struct slots *slots)
{
    uint32_t end = slots->next, kept = 0;

    for (uint32_t slot = 0; slot < end; slot++)
        if (slots->slot[slots->owner[slot]] == slot)
            slots->owner[kept++] = slots->owner[slot];
    slots->next = slots->owned = 0;
    while (slots->next < kept)
        take_next(slots, slots->owner[slots->next]);
}

PT_SPECIALISED uint32_t distance_of(const struct slots *slots, uint32_t object)
{
    uint32_t slot = slots->slot[object];

    if (slot == NO_SLOT)
        return 0;

    uint32_t word = slot / WORD_SLOTS;
    uint64_t before = slots->words[word] & ((UINT64_C(1) << slot % WORD_SLOTS) - 1);

    return slots->owned - slots->before_area[slot / AREA_SLOTS] - slots->in_area[word] -
           (uint32_t)__builtin_popcountll(before);
}

PT_SPECIALISED void use(struct slots *slots, uint32_t object)
{
    if (slots->next == slots->num_areas * AREA_SLOTS)
        move_together(slots);
    if (slots->slot[object] != NO_SLOT)
        release(slots, slots->slot[object]);
    take_next(slots, object);
}

PT_SPECIALISED void replay(struct slots *slots, const struct pt_sim_stream *stream, uint64_t part,
                           uint32_t *distance)
{
    for (uint64_t group = stream->part_start[part]; group < stream->part_start[part + 1]; group++) {
        uint64_t begin = pt_sim_access(stream, group), end = pt_sim_access(stream, group + 1);

        if (begin + AHEAD < stream->num_accesses)
            __builtin_prefetch(&slots->slot[stream->objects[begin + AHEAD]], 1);
        for (uint64_t i = begin; i < end; i++)
            distance[i] = distance_of(slots, stream->objects[i]);
        for (uint64_t i = begin; i < end; i++)
            use(slots, stream->objects[i]);
    }
}

typedef void replay_part(struct slots *slots, const struct pt_sim_stream *stream, uint64_t part,
                         uint32_t *distance);

static void replay_portable(struct slots *slots, const struct pt_sim_stream *stream, uint64_t part,
                            uint32_t *distance)
{
    replay(slots, stream, part, distance);
}

#ifdef __x86_64__
/* The baseline of x86-64 has no instruction that counts bits. */
__attribute__((target("popcnt"))) static void
replay_popcnt(struct slots *slots, const struct pt_sim_stream *stream, uint64_t part,
              uint32_t *distance)
{
    replay(slots, stream, part, distance);
}

static replay_part *fastest(void)
{
    return __builtin_cpu_supports("popcnt") ? replay_popcnt : replay_portable;
}
#else
static replay_part *fastest(void)
{
    return replay_portable;
}
#endif

static void forget(struct slots *slots, const struct pt_sim_stream *stream, uint64_t part)
{
    uint64_t end = pt_sim_access(stream, stream->part_start[part + 1]);

    for (uint64_t i = pt_sim_access(stream, stream->part_start[part]); i < end; i++)
        slots->slot[stream->objects[i]] = NO_SLOT;
    slots->next = slots->owned = 0;
}

int pt_sim_lru_distances(const struct pt_sim_stream *stream, uint32_t *distance)
{
    struct slots slots;
    int result = pt_sim_check(stream);

    if (result == 0)
        result = open_slots(&slots, stream->num_objects);
    if (result != 0)
        return result;
    for (uint64_t part = 0; part < stream->num_parts; part++) {
        fastest()(&slots, stream, part, distance);
        forget(&slots, stream, part);
    }
    close_slots(&slots);
    return 0;
}
