/* SPDX-License-Identifier: Apache-2.0 */
/* Hands the reads of a plan to threads, in order, group by group: a read starts only after every
 * read of the groups before its own has completed.  No lock, no allocation, no search per read. */
#ifndef PAGETIER_SCHEDULE_H
#define PAGETIER_SCHEDULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Apart by more than any cache line in use (64 to 256 bytes), so that the words do not share one. */
#define PT_APART 256

struct pt_schedule {
    _Alignas(PT_APART) _Atomic uint64_t cursor; /* next read to hand out */
    _Alignas(PT_APART) _Atomic uint32_t opened; /* newest open group + 1, or a word of its own */
    _Alignas(PT_APART) _Atomic uint64_t done;   /* reads completed; not kept in the last group */
    _Alignas(PT_APART) const uint64_t *group_start;
    uint64_t num_groups;
    uint64_t num_reads;
    uint64_t last_group; /* the last one with a read in it */
};

struct pt_turn {
    uint64_t read;
    uint64_t group;
};

/* Group g is the reads [group_start[g] .. group_start[g + 1]), and may be empty.  -EOVERFLOW for
 * more groups than `opened` can name.  The array must live as long as the schedule. */
int pt_schedule_init(struct pt_schedule *schedule, const uint64_t *group_start,
                     uint64_t num_groups);
/* Opens the first group: threads that came for a turn before this wait for it. */
void pt_schedule_start(struct pt_schedule *schedule);
/* The next read, once its group is open.  False when nothing is left to read, or after
 * pt_schedule_stop. */
bool pt_schedule_take(struct pt_schedule *schedule, struct pt_turn *turn);
void pt_schedule_complete(struct pt_schedule *schedule, const struct pt_turn *turn);
/* Ends every wait and every later turn. */
void pt_schedule_stop(struct pt_schedule *schedule);

#endif
