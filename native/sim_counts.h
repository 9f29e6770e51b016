/* SPDX-License-Identifier: Apache-2.0 */
/* Objects with use counts; the resident ones in one list per count, the least recently used first. */
#ifndef PAGETIER_SIM_COUNTS_H
#define PAGETIER_SIM_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim_bitset.h"
#include "sim_list.h"
#include "sim_policy.h"

struct pt_counted {
    struct pt_links links;
    uint32_t count;
    uint32_t resident;
};

struct pt_counts {
    struct pt_counted *objects;
    struct pt_list *lists; /* by count */
    struct pt_bitset used; /* counts whose list is not empty */
    uint64_t size;         /* of the residents together */
};

/* 0 or -ENOMEM. */
int pt_counts_open(struct pt_counts *counts, const struct pt_sim_stream *stream);
void pt_counts_close(struct pt_counts *counts);
/* Forgets everything about the objects of a part. */
void pt_counts_reset(struct pt_counts *counts, const struct pt_sim_part *part);

static inline void pt_counts_unlink(struct pt_counts *counts, uint32_t object)
{
    struct pt_counted *gone = &counts->objects[object];
    struct pt_list *list = &counts->lists[gone->count];

    if (gone->links.older == PT_NO_OBJECT)
        list->oldest = gone->links.newer;
    else
        counts->objects[gone->links.older].links.newer = gone->links.newer;
    if (gone->links.newer == PT_NO_OBJECT)
        list->newest = gone->links.older;
    else
        counts->objects[gone->links.newer].links.older = gone->links.older;
    if (list->oldest == PT_NO_OBJECT)
        pt_bitset_remove(&counts->used, gone->count);
}

static inline void pt_counts_link(struct pt_counts *counts, uint32_t object)
{
    struct pt_counted *come = &counts->objects[object];
    struct pt_list *list = &counts->lists[come->count];

    come->links = (struct pt_links){list->newest, PT_NO_OBJECT};
    if (list->newest == PT_NO_OBJECT) {
        list->oldest = object;
        pt_bitset_add(&counts->used, come->count);
    } else {
        counts->objects[list->newest].links.newer = object;
    }
    list->newest = object;
}

/* A use of a resident object. */
static inline void pt_counts_touch(struct pt_counts *counts, uint32_t object)
{
    pt_counts_unlink(counts, object);
    counts->objects[object].count++;
    pt_counts_link(counts, object);
}

/* A use of an absent object that becomes resident. */
static inline void pt_counts_admit(struct pt_counts *counts, uint32_t object, uint64_t size)
{
    counts->objects[object].count++;
    counts->objects[object].resident = true;
    counts->size += size;
    pt_counts_link(counts, object);
}

static inline void pt_counts_evict(struct pt_counts *counts, uint32_t object, uint64_t size)
{
    pt_counts_unlink(counts, object);
    counts->objects[object].resident = false;
    counts->size -= size;
}

/* The least recently used of the least used; there must be a resident. */
static inline uint32_t pt_counts_least(const struct pt_counts *counts)
{
    return counts->lists[pt_bitset_least(&counts->used)].oldest;
}

#endif
