/* SPDX-License-Identifier: Apache-2.0 */
/* Within one count the least recently used object has the least count / age, so the victim is the
 * least among the heads of the lists. */
#include "sim_counts.h"

struct lfru {
    struct pt_counts counts;
    uint32_t *last; /* time of the last use */
};

static void *open_lfru(const struct pt_sim_stream *stream)
{
    struct lfru *lfru = malloc(sizeof(*lfru));

    if (lfru == NULL)
        return NULL;
    lfru->last = calloc((uint64_t)stream->num_objects + 1, sizeof(*lfru->last));
    if (lfru->last != NULL && pt_counts_open(&lfru->counts, stream) == 0)
        return lfru;
    free(lfru->last);
    free(lfru);
    return NULL;
}

static void close_lfru(void *state)
{
    struct lfru *lfru = state;

    pt_counts_close(&lfru->counts);
    free(lfru->last);
    free(lfru);
}

/* Products of two 32-bit numbers: the comparison of count / age is exact. */
static bool before(const struct lfru *lfru, const struct pt_sim_stream *stream, uint64_t now,
                   uint32_t left, uint32_t right)
{
    uint64_t left_score = lfru->counts.objects[left].count * (now - lfru->last[right] + 1);
    uint64_t right_score = lfru->counts.objects[right].count * (now - lfru->last[left] + 1);

    if (left_score != right_score)
        return left_score < right_score;
    return pt_sim_rank(stream, left) < pt_sim_rank(stream, right);
}

static void shrink(struct lfru *lfru, const struct pt_sim_stream *stream, uint64_t capacity,
                   uint64_t now)
{
    struct pt_counts *counts = &lfru->counts;

    while (counts->size > capacity) {
        uint64_t count = pt_bitset_least(&counts->used);
        uint32_t victim = counts->lists[count].oldest;

        while ((count = pt_bitset_above(&counts->used, count)) != UINT64_MAX)
            if (before(lfru, stream, now, counts->lists[count].oldest, victim))
                victim = counts->lists[count].oldest;
        pt_counts_evict(counts, victim, pt_sim_size(stream, victim));
    }
}

/* Counts go on while an object is absent; one that cannot be held is never a candidate. */
static void use(struct lfru *lfru, const struct pt_sim_part *part, uint32_t object, uint64_t time)
{
    uint64_t size = pt_sim_size(part->stream, object);

    if (lfru->counts.objects[object].resident)
        pt_counts_touch(&lfru->counts, object);
    else if (size <= part->capacity)
        pt_counts_admit(&lfru->counts, object, size);
    lfru->last[object] = (uint32_t)time;
}

static void run_accesses(struct lfru *lfru, const struct pt_sim_part *part, uint8_t *hit)
{
    const struct pt_sim_stream *stream = part->stream;

    for (uint64_t i = part->first_group; i < part->end_group; i++) {
        uint32_t object = stream->objects[i];
        uint64_t size = pt_sim_size(stream, object), time = pt_sim_time(stream, i);

        hit[i] = (uint8_t)lfru->counts.objects[object].resident;
        /* The victim is chosen before this access counts: ages end with the one before. */
        if (!hit[i] && size <= part->capacity)
            shrink(lfru, stream, part->capacity - size, time - 1);
        use(lfru, part, object, time);
    }
}

static void run_events(struct lfru *lfru, const struct pt_sim_part *part, uint8_t *hit)
{
    const struct pt_sim_stream *stream = part->stream;

    for (uint64_t group = part->first_group; group < part->end_group; group++) {
        uint64_t begin = stream->group_start[group], end = stream->group_start[group + 1];
        uint64_t time = pt_sim_time(stream, group);

        for (uint64_t i = begin; i < end; i++) {
            hit[i] = (uint8_t)lfru->counts.objects[stream->objects[i]].resident;
            use(lfru, part, stream->objects[i], time);
        }
        shrink(lfru, stream, part->capacity, time);
    }
}

static void run_lfru(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    struct lfru *lfru = state;

    if (part->stream->group_start != NULL)
        run_events(lfru, part, hit);
    else
        run_accesses(lfru, part, hit);
    pt_counts_reset(&lfru->counts, part);
}

const struct pt_sim_policy pt_sim_lfru = {open_lfru, run_lfru, close_lfru};
