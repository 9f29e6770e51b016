/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

#include <errno.h>
#include <limits.h>

#include "futex.h"

#define CLOSED 0
#define STOPPED UINT32_MAX

static bool is_empty(const struct pt_schedule *schedule, uint64_t group)
{
    return schedule->group_start[group] == schedule->group_start[group + 1];
}

/* Fails only when the schedule was stopped meanwhile, which must stay so. */
static bool publish(struct pt_schedule *schedule, uint32_t before, uint64_t group)
{
    return atomic_compare_exchange_strong(&schedule->opened, &before, (uint32_t)(group + 1));
}

static uint64_t next_with_reads(const struct pt_schedule *schedule, uint64_t group)
{
    while (is_empty(schedule, group))
        group++;
    return group;
}

/* The thread that opens a group goes on with it at once; one more is woken for each other read.
 * Who is not woken has nothing to do, but at the end all must see that it is the end. */
static uint32_t threads_to_wake(const struct pt_schedule *schedule, uint64_t group)
{
    uint64_t others = schedule->group_start[group + 1] - schedule->group_start[group] - 1;

    return group == schedule->last_group || others > INT_MAX ? INT_MAX : (uint32_t)others;
}

static void open_next(struct pt_schedule *schedule, uint64_t finished)
{
    uint64_t group = next_with_reads(schedule, finished + 1);
    uint32_t threads = threads_to_wake(schedule, group);

    if (publish(schedule, (uint32_t)(finished + 1), group) && threads > 0)
        pt_futex_wake(&schedule->opened, threads);
}

int pt_schedule_init(struct pt_schedule *schedule, const uint64_t *group_start, uint64_t num_groups)
{
    if (num_groups >= STOPPED)
        return -EOVERFLOW;
    schedule->group_start = group_start;
    schedule->num_groups = num_groups;
    schedule->num_reads = group_start[num_groups];
    schedule->last_group = num_groups ? num_groups - 1 : 0;
    while (schedule->last_group > 0 && is_empty(schedule, schedule->last_group))
        schedule->last_group--;
    atomic_store(&schedule->cursor, 0);
    atomic_store(&schedule->done, 0);
    atomic_store(&schedule->opened, CLOSED);
    return 0;
}

void pt_schedule_start(struct pt_schedule *schedule)
{
    if (schedule->num_reads == 0)
        return;
    publish(schedule, CLOSED, next_with_reads(schedule, 0));
    pt_futex_wake(&schedule->opened, INT_MAX);
}

/* False when all reads of the open group are handed out. */
static bool take_within(struct pt_schedule *schedule, uint64_t group, struct pt_turn *turn)
{
    uint64_t next = atomic_load_explicit(&schedule->cursor, memory_order_relaxed);

    while (next < schedule->group_start[group + 1])
        if (atomic_compare_exchange_weak_explicit(&schedule->cursor, &next, next + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *turn = (struct pt_turn){next, group};
            return true;
        }
    return false;
}

/* Nothing comes after the last group: the cursor may overshoot it. */
static bool take_last(struct pt_schedule *schedule, struct pt_turn *turn)
{
    turn->group = schedule->last_group;
    turn->read = atomic_fetch_add_explicit(&schedule->cursor, 1, memory_order_relaxed);
    return turn->read < schedule->num_reads;
}

bool pt_schedule_take(struct pt_schedule *schedule, struct pt_turn *turn)
{
    while (schedule->num_reads > 0) {
        uint32_t opened = atomic_load_explicit(&schedule->opened, memory_order_acquire);

        if (opened == STOPPED)
            return false;
        if (opened == schedule->last_group + 1)
            return take_last(schedule, turn);
        if (opened != CLOSED && take_within(schedule, opened - 1, turn))
            return true;
        pt_futex_wait(&schedule->opened, opened);
    }
    return false;
}

void pt_schedule_complete(struct pt_schedule *schedule, const struct pt_turn *turn)
{
    if (turn->group == schedule->last_group)
        return;
    /* Only reads of open groups run, so `done` meets the end of the newest group exactly once. */
    uint64_t done = atomic_fetch_add_explicit(&schedule->done, 1, memory_order_acq_rel) + 1;
    if (done == schedule->group_start[turn->group + 1])
        open_next(schedule, turn->group);
}

void pt_schedule_stop(struct pt_schedule *schedule)
{
    atomic_store(&schedule->opened, STOPPED);
    pt_futex_wake(&schedule->opened, INT_MAX);
}
