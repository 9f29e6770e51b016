/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_counts.h"

int pt_counts_open(struct pt_counts *counts, const struct pt_sim_stream *stream)
{
    /* A count cannot exceed the accesses.  calloc leaves what is never reached unmapped. */
    uint64_t num_counts = stream->num_accesses + 2;

    *counts = (struct pt_counts){
        .objects = calloc((uint64_t)stream->num_objects + 1, sizeof(*counts->objects)),
        .lists = malloc(num_counts * sizeof(*counts->lists)),
    };
    if (counts->objects == NULL || counts->lists == NULL ||
        pt_bitset_open(&counts->used, num_counts) != 0) {
        free(counts->objects);
        free(counts->lists);
        return -ENOMEM;
    }
    for (uint64_t count = 0; count < num_counts; count++)
        counts->lists[count] = PT_EMPTY_LIST;
    return 0;
}

void pt_counts_close(struct pt_counts *counts)
{
    pt_bitset_close(&counts->used);
    free(counts->lists);
    free(counts->objects);
}

void pt_counts_reset(struct pt_counts *counts, const struct pt_sim_part *part)
{
    const struct pt_sim_stream *stream = part->stream;
    uint64_t end = pt_sim_access(stream, part->end_group);

    while (!pt_bitset_empty(&counts->used)) {
        uint64_t count = pt_bitset_least(&counts->used);

        counts->lists[count] = PT_EMPTY_LIST;
        pt_bitset_remove(&counts->used, count);
    }
    for (uint64_t i = pt_sim_access(stream, part->first_group); i < end; i++)
        counts->objects[stream->objects[i]] = (struct pt_counted){0};
    counts->size = 0;
}
