/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

#include <errno.h>

#include "futex.h"

#define CLOSED 0
#define STOPPED UINT32_MAX

/* Threads wait for groups near each other: a bit per group wakes only those of the group that
 * opens.  Groups 32 apart share a bit, and look again. */
static uint32_t group_bit(uint64_t group)
{
    return UINT32_C(1) << (group % 32);
}

static bool is_empty(const struct pt_schedule *schedule, uint64_t group)
{
    return schedule->group_start[group] == schedule->group_start[group + 1];
}

static void open_group(struct pt_schedule *schedule, uint32_t before, uint64_t group)
{
    while (is_empty(schedule, group))
        group++;
    /* Fails only when the schedule was stopped meanwhile, which must stay so. */
    if (atomic_compare_exchange_strong(&schedule->opened, &before, (uint32_t)(group + 1)))
        pt_futex_wake(&schedule->opened, group_bit(group));
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
    if (schedule->num_reads > 0)
        open_group(schedule, CLOSED, 0);
}

bool pt_schedule_take(struct pt_schedule *schedule, struct pt_turn *turn)
{
    turn->read = atomic_fetch_add_explicit(&schedule->cursor, 1, memory_order_relaxed);
    if (turn->read >= schedule->num_reads)
        return false;
    while (turn->read >= schedule->group_start[turn->group + 1])
        turn->group++;
    for (;;) {
        uint32_t opened = atomic_load_explicit(&schedule->opened, memory_order_acquire);

        if (opened == STOPPED)
            return false;
        if (opened > turn->group)
            return true;
        pt_futex_wait(&schedule->opened, opened, group_bit(turn->group));
    }
}

void pt_schedule_complete(struct pt_schedule *schedule, const struct pt_turn *turn)
{
    if (turn->group == schedule->last_group)
        return;
    /* Only reads of open groups run, so `done` meets the end of the newest group exactly once. */
    uint64_t done = atomic_fetch_add_explicit(&schedule->done, 1, memory_order_acq_rel) + 1;
    if (done == schedule->group_start[turn->group + 1])
        open_group(schedule, (uint32_t)(turn->group + 1), turn->group + 1);
}

void pt_schedule_stop(struct pt_schedule *schedule)
{
    atomic_store(&schedule->opened, STOPPED);
    pt_futex_wake(&schedule->opened, PT_FUTEX_ALL);
}
