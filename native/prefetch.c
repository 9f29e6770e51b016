/* SPDX-License-Identifier: Apache-2.0 */
#include "prefetch.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "futex.h"
#include "residency.h"
#include "schedule.h"
#include "threads.h"

/* In the slot: a record + 1, or one of these. */
#define EMPTY 0
#define STOP UINT32_MAX

/* To wake the worker on another processor takes some 6 microseconds of the reader that does it,
 * where the interrupt for it leaves a virtual machine (measured on 6.18 under KVM): nothing beside
 * a record that waits for a device, 4 % of one that is copied from the page cache.  So a worker
 * whose hints come quickly looks for the next one by itself.  A nap is longer than this by the
 * timer slack of the thread, 50 microseconds unless changed. */
#define NAP_NS 50000
#define QUICK_NS 1000000

/* What is known of an expert while reads and hints of it may overlap. */
struct watch {
    _Atomic uint32_t reads_started;
    _Atomic uint32_t reads_ended;
    _Atomic uint64_t brought_bytes; /* by hints, since its last read */
    _Atomic uint64_t present_bytes; /* of the expert, when the last of them were brought */
};

/* Of one expert, while it is hinted. */
struct tally {
    uint64_t present; /* bytes resident before, and what the calls brought so far */
};

struct pt_prefetch {
    _Alignas(PT_APART) _Atomic uint32_t slot;
    _Alignas(PT_APART) _Atomic uint32_t asleep; /* or about to: the next hint must wake it */
    _Atomic uint32_t stopping;
    _Atomic uint32_t abandoned;
    /* Constant during a replay. */
    _Alignas(PT_APART) const struct pt_pool *pool;
    struct pt_files files;
    struct pt_courier courier;
    pt_deliver *deliver;
    bool reads_ahead; /* beyond the piece that is delivered */
    uint64_t buffer_bytes;
    uint64_t chunk_bytes; /* 0: whole extents */
    struct watch *watch;  /* of each expert */
    const struct pt_plan *plan;
    const struct pt_hints *hints;
    struct pt_pass *pass;
    pthread_t thread;
};

static void add_sum(const struct pt_prefetch *prefetch, enum pt_column column, uint64_t iteration,
                    uint64_t amount)
{
    uint64_t row = (uint64_t)column * prefetch->plan->num_iterations;

    if (amount)
        __atomic_add_fetch(&prefetch->pass->sums[row + iteration], amount, __ATOMIC_RELAXED);
}

static uint64_t iteration_of(const struct pt_plan *plan, uint64_t record)
{
    uint64_t low = 0;
    uint64_t high = plan->num_iterations; /* starts behind the record */

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (plan->iteration_start[middle] <= record)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- Demand ---- */

void pt_prefetch_post(struct pt_prefetch *prefetch, uint64_t record, uint64_t iteration)
{
    const uint64_t *start = prefetch->hints->start;

    if (start[record] == start[record + 1])
        return;
    uint32_t waiting = atomic_exchange(&prefetch->slot, (uint32_t)(record + 1));
    if (waiting != EMPTY)
        add_sum(prefetch, PT_HINT_OVERWRITTEN, iteration_of(prefetch->plan, waiting - 1), 1);
    add_sum(prefetch, PT_HINT_SUBMITTED, iteration, 1);
    /* Once: until it runs, further calls would wake nobody. */
    if (atomic_load(&prefetch->asleep) && atomic_exchange(&prefetch->asleep, 0))
        pt_futex_wake(&prefetch->slot, 1);
}

void pt_prefetch_read_starts(struct pt_prefetch *prefetch, uint32_t expert)
{
    atomic_fetch_add(&prefetch->watch[expert].reads_started, 1);
}

struct pt_use pt_prefetch_read_ends(struct pt_prefetch *prefetch, uint32_t expert,
                                    uint64_t resident_bytes)
{
    struct watch *watch = &prefetch->watch[expert];

    atomic_fetch_add(&watch->reads_ended, 1);
    if (atomic_load(&watch->brought_bytes) == 0)
        return (struct pt_use){0, 0};
    uint64_t brought = atomic_exchange(&watch->brought_bytes, 0);
    uint64_t present = atomic_load(&watch->present_bytes);
    uint64_t gone = present > resident_bytes ? present - resident_bytes : 0;
    uint64_t evicted = gone < brought ? gone : brought;
    return (struct pt_use){brought - evicted, evicted};
}

/* ---- One hint ---- */

static int64_t resident_bytes(const struct pt_prefetch *prefetch, uint32_t expert,
                              struct pt_fault *fault)
{
    const struct pt_pool *pool = prefetch->pool;
    int64_t bytes = 0;

    if (prefetch->files.residency == PT_RESIDENCY_OFF)
        return 0;
    for (uint64_t i = pool->expert_start[expert]; i < pool->expert_start[expert + 1]; i++) {
        int64_t more = pt_files_resident(&prefetch->files, 0, &pool->extents[i], fault);

        if (more < 0)
            return more;
        bytes += more;
    }
    return bytes;
}

/* No more of what hints brought can be unread than is there: the rest was evicted meanwhile. */
static void credit(const struct pt_prefetch *prefetch, uint32_t expert, uint64_t iteration,
                   uint64_t brought, uint64_t present)
{
    struct watch *watch = &prefetch->watch[expert];
    uint64_t before = atomic_load(&watch->brought_bytes);
    uint64_t after;

    atomic_store(&watch->present_bytes, present);
    do
        after = before + brought < present ? before + brought : present;
    while (!atomic_compare_exchange_weak(&watch->brought_bytes, &before, after));
    add_sum(prefetch, PT_HINT_BROUGHT_BYTES, iteration, brought);
    add_sum(prefetch, PT_HINT_LOST_BYTES, iteration, before + brought - after);
}

/* Pages that come while a read of the expert runs may have been absent for it, and are counted
 * there.
 * `reach`: how far a call may bring pages, from its start on. */
static int deliver_measured(const struct pt_prefetch *prefetch, uint32_t expert,
                            uint64_t iteration, const struct pt_piece *piece, uint64_t reach,
                            struct tally *tally, struct pt_fault *fault)
{
    const struct watch *watch = &prefetch->watch[expert];
    const struct pt_extent extent = {piece->file, piece->offset, reach};
    /* In this order: equal numbers mean that no read ran when the second was loaded. */
    uint32_t ended = atomic_load(&watch->reads_ended);
    uint32_t started = atomic_load(&watch->reads_started);
    int64_t before = pt_files_resident(&prefetch->files, 0, &extent, fault);
    int result = before < 0 ? (int)before : prefetch->deliver(&prefetch->courier, piece, fault);
    int64_t after = result < 0 ? result : pt_files_resident(&prefetch->files, 0, &extent, fault);

    if (after <= before)
        return after < 0 ? (int)after : 0;
    uint64_t brought = (uint64_t)(after - before);
    tally->present += brought;
    if (started == ended && started == atomic_load(&watch->reads_started))
        credit(prefetch, expert, iteration, brought, tally->present);
    else
        add_sum(prefetch, PT_HINT_RACED_BYTES, iteration, brought);
    return 0;
}

static int hint_extent(const struct pt_prefetch *prefetch, uint32_t expert, uint64_t iteration,
                       const struct pt_extent *extent, struct tally *tally,
                       struct pt_fault *fault)
{
    uint64_t page_bytes = prefetch->files.page_bytes;
    uint64_t at = extent->offset / page_bytes * page_bytes;
    uint64_t end = extent->offset + extent->length;
    bool measured = prefetch->files.residency != PT_RESIDENCY_OFF;
    int result = 0;

    while (at < end && result == 0) {
        uint64_t left = end - at;
        bool whole = prefetch->chunk_bytes == 0 || left < prefetch->chunk_bytes;
        struct pt_piece piece = {extent->file, at, whole ? left : prefetch->chunk_bytes};

        if (atomic_load_explicit(&prefetch->abandoned, memory_order_relaxed))
            return pt_fail(fault, -ECANCELED, "replay", PT_NONE, 0);
        uint64_t reach = prefetch->reads_ahead ? left : piece.length;
        result = measured
                     ? deliver_measured(prefetch, expert, iteration, &piece, reach, tally, fault)
                     : prefetch->deliver(&prefetch->courier, &piece, fault);
        at += piece.length;
    }
    return result;
}

static uint64_t expert_page_bytes(const struct pt_prefetch *prefetch, uint32_t expert)
{
    const struct pt_pool *pool = prefetch->pool;
    uint64_t bytes = 0;

    for (uint64_t i = pool->expert_start[expert]; i < pool->expert_start[expert + 1]; i++)
        bytes += pt_pages_touched(pool->extents[i].offset, pool->extents[i].length) *
                 prefetch->files.page_bytes;
    return bytes;
}

static int hint_extents(const struct pt_prefetch *prefetch, uint32_t expert, uint64_t iteration,
                        struct tally *tally, struct pt_fault *fault)
{
    const struct pt_pool *pool = prefetch->pool;
    int result = 0;

    for (uint64_t i = pool->expert_start[expert];
         i < pool->expert_start[expert + 1] && result == 0; i++)
        result = hint_extent(prefetch, expert, iteration, &pool->extents[i], tally, fault);
    return result;
}

static int hint_expert(const struct pt_prefetch *prefetch, uint32_t expert, uint64_t iteration,
                       struct pt_fault *fault)
{
    uint64_t page_bytes = expert_page_bytes(prefetch, expert);

    fault->expert = expert;
    int64_t before = resident_bytes(prefetch, expert, fault);
    if (before < 0)
        return (int)before;
    struct tally tally = {(uint64_t)before};
    int64_t after = before;
    /* Where all is resident, the kernel would look at every page to find nothing to do: a tenth of
     * the time of a copy, which on a busy host is taken from the readers. */
    if ((uint64_t)before < page_bytes) {
        int result = hint_extents(prefetch, expert, iteration, &tally, fault);
        after = result < 0 ? result : resident_bytes(prefetch, expert, fault);
    }
    add_sum(prefetch, PT_HINT_BYTES, iteration, page_bytes);
    add_sum(prefetch, PT_HINT_RESIDENT_BEFORE, iteration, (uint64_t)before);
    if (after < 0)
        return (int)after;
    add_sum(prefetch, PT_HINT_RESIDENT_AFTER, iteration, (uint64_t)after);
    return 0;
}

static void note_outcome(const struct pt_prefetch *prefetch, uint64_t iteration, int result,
                         const struct pt_fault *fault)
{
    struct pt_pass *pass = prefetch->pass;

    if (result == 0)
        add_sum(prefetch, PT_HINT_COMPLETED, iteration, 1);
    if (result == 0 || result == -ECANCELED)
        return;
    add_sum(prefetch, PT_HINT_FAILED, iteration, 1);
    if (pass->hint_result < 0)
        return;
    pass->hint_result = result;
    pass->hint_fault = *fault;
}

static void give_hint(const struct pt_prefetch *prefetch, uint64_t record)
{
    const struct pt_hints *hints = prefetch->hints;
    uint64_t iteration = iteration_of(prefetch->plan, record);
    struct pt_fault fault;
    int result = 0;

    for (uint64_t i = hints->start[record]; i < hints->start[record + 1] && result == 0; i++)
        result = hint_expert(prefetch, hints->experts[i], iteration, &fault);
    note_outcome(prefetch, iteration, result, &fault);
}

/* ---- The worker ---- */

/* A woken thread of this class preempts nobody: without a processor to spare the hint waits until a
 * reader does, or its turn ends.  Where that is forbidden the hints come all the same. */
static void stand_back(void)
{
    const struct sched_param none = {0};

    if (sched_getscheduler(0) == SCHED_OTHER)
        sched_setscheduler(0, SCHED_BATCH, &none);
}

static void rest(struct pt_prefetch *prefetch, bool nap)
{
    if (nap) {
        pt_futex_wait_for(&prefetch->slot, EMPTY, NAP_NS);
        return;
    }
    atomic_store(&prefetch->asleep, 1);
    pt_futex_wait(&prefetch->slot, EMPTY);
    atomic_store(&prefetch->asleep, 0);
}

/* A record + 1, or STOP.
 * `waited_ns`: for the one before; then for this one. */
static uint32_t take(struct pt_prefetch *prefetch, uint64_t *waited_ns)
{
    uint64_t start = pt_now_ns();
    bool quick = *waited_ns < QUICK_NS;

    for (;;) {
        /* Before the slot: what was posted before the stop is there then. */
        bool stopping = atomic_load(&prefetch->stopping);
        uint32_t word = atomic_exchange(&prefetch->slot, EMPTY);

        *waited_ns = pt_now_ns() - start;
        if (word != EMPTY)
            return word;
        if (stopping)
            return STOP;
        rest(prefetch, quick && *waited_ns < QUICK_NS);
    }
}

static void *work(void *argument)
{
    struct pt_prefetch *prefetch = argument;
    struct pt_pass *pass = prefetch->pass;
    uint64_t waited_ns = 0;
    uint64_t busy_ns = 0;
    uint32_t word;

    stand_back();
    while ((word = take(prefetch, &waited_ns)) != STOP) {
        uint64_t start = pt_now_ns();

        give_hint(prefetch, word - 1);
        busy_ns += pt_now_ns() - start;
    }
    pass->hint_busy_ns = busy_ns;
    pt_thread_cpu(&pass->hint_user_ns, &pass->hint_system_ns);
    return NULL;
}

int pt_prefetch_begin(struct pt_prefetch *prefetch, const struct pt_plan *plan,
                      const struct pt_hints *hints, struct pt_pass *pass)
{
    if (plan->num_records >= STOP - 1)
        return -EOVERFLOW;
    prefetch->plan = plan;
    prefetch->hints = hints;
    prefetch->pass = pass;
    for (uint32_t e = 0; e < prefetch->pool->num_experts; e++)
        atomic_store(&prefetch->watch[e].brought_bytes, 0);
    atomic_store(&prefetch->slot, EMPTY);
    atomic_store(&prefetch->asleep, 0);
    atomic_store(&prefetch->stopping, 0);
    atomic_store(&prefetch->abandoned, 0);
    return 0;
}

int pt_prefetch_start(struct pt_prefetch *prefetch)
{
    return pt_thread_start(&prefetch->thread, work, prefetch);
}

void pt_prefetch_finish(struct pt_prefetch *prefetch)
{
    struct pt_pass *pass = prefetch->pass;
    uint32_t empty = EMPTY;

    atomic_store(&prefetch->stopping, 1);
    /* A hint that waits is taken first; then the worker looks at `stopping`. */
    atomic_compare_exchange_strong(&prefetch->slot, &empty, STOP);
    pt_futex_wake(&prefetch->slot, INT_MAX);
    pthread_join(prefetch->thread, NULL);
    for (uint32_t e = 0; e < prefetch->pool->num_experts; e++)
        pass->hint_unused_bytes += atomic_load(&prefetch->watch[e].brought_bytes);
}

void pt_prefetch_abandon(struct pt_prefetch *prefetch)
{
    atomic_store(&prefetch->abandoned, 1);
}

/* ---- Opening and closing ---- */

static int map_buffer(struct pt_prefetch *prefetch, struct pt_fault *fault)
{
    uint64_t page_bytes = pt_page_bytes();
    uint64_t bytes;
    int result = pt_pool_largest_expert(prefetch->pool, &bytes, fault);

    if (result < 0)
        return result;
    if (prefetch->chunk_bytes != 0 && prefetch->chunk_bytes < bytes)
        bytes = prefetch->chunk_bytes;
    /* An extent that starts within a page is read from the start of that page on. */
    bytes = (bytes / page_bytes + 2) * page_bytes;
    void *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (buffer == MAP_FAILED)
        return pt_fail(fault, -errno, "mmap", PT_NONE, 0);
    prefetch->courier.buffer = buffer;
    prefetch->buffer_bytes = bytes;
    return 0;
}

static int prepare(struct pt_prefetch *prefetch, const struct pt_options *options,
                   struct pt_fault *fault)
{
    const struct pt_options reading = {
        .threads = 1,
        .mode = PT_PREAD,
        .advice = options->advice,
        .residency = options->residency,
        .max_descriptors = options->max_hint_descriptors,
    };

    if (options->delivery == PT_DELIVERY_BLOCKING) {
        prefetch->deliver = pt_deliver_blocking;
        prefetch->reads_ahead = true;
        int result = map_buffer(prefetch, fault);
        if (result < 0)
            return result;
    } else {
        prefetch->deliver =
            pt_source_of(options->mode)->maps ? pt_deliver_madvise : pt_deliver_fadvise;
    }
    return pt_files_open(&prefetch->files, prefetch->pool, &reading, (uint32_t)pt_page_bytes(),
                         fault);
}

static struct pt_prefetch *allocate(const struct pt_pool *pool)
{
    struct pt_prefetch *prefetch = aligned_alloc(PT_APART, sizeof *prefetch);

    if (!prefetch)
        return NULL;
    memset(prefetch, 0, sizeof *prefetch);
    prefetch->pool = pool;
    prefetch->files.pool = pool;
    prefetch->watch = calloc(pool->num_experts + (size_t)1, sizeof *prefetch->watch);
    if (prefetch->watch)
        return prefetch;
    free(prefetch);
    return NULL;
}

int pt_prefetch_open(const struct pt_pool *pool, const struct pt_options *options,
                     const struct pt_files *reading, struct pt_prefetch **prefetch,
                     struct pt_fault *fault)
{
    struct pt_prefetch *made = allocate(pool);
    uint64_t page_bytes = pt_page_bytes();

    if (!made)
        return pt_fail(fault, -ENOMEM, "calloc", PT_NONE, 0);
    made->courier.files = &made->files;
    made->courier.mapped = reading;
    made->chunk_bytes = options->hint_chunk_bytes / page_bytes * page_bytes;
    if (options->hint_chunk_bytes != 0 && made->chunk_bytes == 0)
        made->chunk_bytes = page_bytes;
    int result = prepare(made, options, fault);
    if (result < 0) {
        pt_prefetch_close(made);
        return result;
    }
    *prefetch = made;
    return 0;
}

void pt_prefetch_close(struct pt_prefetch *prefetch)
{
    pt_files_close(&prefetch->files);
    if (prefetch->courier.buffer)
        munmap(prefetch->courier.buffer, prefetch->buffer_bytes);
    free(prefetch->watch);
    free(prefetch);
}
