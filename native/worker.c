/* SPDX-License-Identifier: Apache-2.0 */
#include "worker.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "arena.h"
#include "clock.h"
#include "content.h"
#include "digest.h"

/* ---- Content ---- */

/* Where byte `at` of an expert lies on file. */
static int wrong_content(const struct pt_pool *pool, uint32_t expert, uint64_t at,
                         struct pt_fault *fault)
{
    const struct pt_extent *extent = &pool->extents[pool->expert_start[expert]];

    while (at >= extent->length) {
        at -= extent->length;
        extent++;
    }
    return pt_fail(fault, -EILSEQ, "verify", extent->file, extent->offset + at);
}

/* A digest does not say where: the start of the expert stands for it. */
static int compare(const struct pt_worker *worker, uint32_t expert, uint64_t length,
                   struct pt_fault *fault)
{
    const struct pt_pass *pass = worker->work->pass;
    uint64_t agrees = length;

    if (pass->expert_digest == NULL)
        agrees = pt_content_mismatch(worker->buffer, length, pass->content_seed, expert, 0);
    else if (pt_digest(worker->buffer, length, 0) != pass->expert_digest[expert])
        agrees = 0;
    if (agrees < length)
        return wrong_content(worker->work->pool, expert, agrees, fault);
    return 0;
}

static int verify(struct pt_worker *worker, uint64_t read, uint32_t expert, uint64_t length,
                  struct pt_fault *fault)
{
    const struct pt_pass *pass = worker->work->pass;

    if (pass->hash_content)
        worker->content_hash += pt_digest(worker->buffer, length, read);
    if (pass->verify_every == 0 || read % pass->verify_every != 0)
        return 0;
    int result = compare(worker, expert, length, fault);
    if (result < 0)
        return result;
    worker->verified_reads++;
    return 0;
}

/* ---- Counting ---- */

void pt_worker_flush(struct pt_worker *worker)
{
    struct pt_pass *pass = worker->work->pass;
    uint64_t num_iterations = worker->work->plan->num_iterations;

    if (worker->sums[PT_READS] == 0)
        return;
    for (uint64_t column = 0; column < PT_COLUMNS; column++) {
        uint64_t *total = &pass->sums[column * num_iterations + worker->iteration];

        if (worker->sums[column])
            __atomic_add_fetch(total, worker->sums[column], __ATOMIC_RELAXED);
        worker->sums[column] = 0;
    }
}

static void enter_iteration(struct pt_worker *worker, uint64_t read)
{
    const uint64_t *read_start = worker->work->iteration_read_start;

    if (read < read_start[worker->iteration + 1])
        return;
    pt_worker_flush(worker);
    while (read >= read_start[worker->iteration + 1])
        worker->iteration++;
}

/* Who makes the first read of a record submits its hint. */
static void enter_record(struct pt_worker *worker, uint64_t read)
{
    const uint64_t *record_start = worker->work->plan->record_start;

    while (read >= record_start[worker->record + 1])
        worker->record++;
    if (read == record_start[worker->record])
        pt_prefetch_post(worker->work->prefetch, worker->record, worker->iteration);
}

/* A counter with one writer needs no locked instruction. */
static void advance(_Atomic uint64_t *counter, uint64_t amount)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, before + amount, memory_order_relaxed);
}

static void account_device(struct pt_worker *worker, uint32_t expert, const struct pt_cost *cost)
{
    /* Looked at first: a line that is only read may stay in the caches of all threads. */
    unsigned char *touched = &worker->work->touched[expert];
    bool again = __atomic_load_n(touched, __ATOMIC_RELAXED) ||
                 __atomic_exchange_n(touched, 1, __ATOMIC_RELAXED);

    worker->sums[again ? PT_REPEAT_BYTES : PT_FIRST_BYTES] += cost->absent_bytes;
    worker->sums[PT_RESIDENT_BYTES] += cost->resident_bytes;
    worker->sums[PT_OVER_READ_BYTES] += cost->over_read_bytes;
}

static void account(struct pt_worker *worker, uint64_t length, uint64_t latency_ns)
{
    struct pt_work *work = worker->work;

    worker->sums[PT_READS]++;
    worker->sums[PT_BYTES] += length;
    worker->latency_histogram[pt_histogram_bucket(latency_ns)]++;
    advance(&worker->reads, 1);
    advance(&worker->bytes, length);
    if (atomic_fetch_sub(&work->iteration_left[worker->iteration], 1) != 1)
        return;
    work->pass->iteration_end_ns[worker->iteration] = pt_now_ns();
    atomic_fetch_add_explicit(&work->iterations_done, 1, memory_order_relaxed);
}

/* ---- One read ---- */

static int copy_from_pool(struct pt_worker *worker, uint32_t expert, struct pt_cost *cost,
                          struct pt_fault *fault)
{
    const struct pt_pool *pool = worker->work->pool;
    uint64_t length = 0;

    for (uint64_t i = pool->expert_start[expert]; i < pool->expert_start[expert + 1]; i++) {
        int result = pt_files_read(worker->work->files, worker->index, &pool->extents[i],
                                   worker->buffer + length, cost, fault);
        if (result < 0)
            return result;
        length += pool->extents[i].length;
    }
    return 0;
}

static int read_pool(struct pt_worker *worker, uint32_t expert, struct pt_cost *cost,
                     struct pt_fault *fault)
{
    struct pt_prefetch *prefetch = worker->work->prefetch;
    struct pt_use use = {0, 0};

    if (prefetch)
        pt_prefetch_read_starts(prefetch, expert);
    int result = copy_from_pool(worker, expert, cost, fault);
    if (prefetch)
        use = pt_prefetch_read_ends(prefetch, expert, cost->resident_bytes);
    if (result < 0)
        return result;
    account_device(worker, expert, cost);
    worker->sums[PT_HINT_USED_BYTES] += use.used;
    worker->sums[PT_HINT_EVICTED_BYTES] += use.evicted;
    return 0;
}

static void read_arena(struct pt_worker *worker, const unsigned char *held, uint64_t length,
                       struct pt_cost *cost)
{
    uint64_t start = pt_now_ns();

    memcpy(worker->buffer, held, length);
    cost->latency_ns = pt_now_ns() - start;
    worker->sums[PT_ARENA_READS]++;
    worker->sums[PT_ARENA_BYTES] += length;
}

int pt_worker_read(struct pt_worker *worker, uint64_t read, struct pt_fault *fault)
{
    const struct pt_work *work = worker->work;
    uint32_t expert = work->plan->experts[read];
    uint64_t length = pt_pool_expert_bytes(work->pool, expert);
    const unsigned char *held = work->arena ? pt_arena_find(work->arena, expert) : NULL;
    struct pt_cost cost = {0};
    int result = 0;

    fault->expert = expert;
    enter_iteration(worker, read);
    if (work->prefetch)
        enter_record(worker, read);
    if (held)
        read_arena(worker, held, length, &cost);
    else
        result = read_pool(worker, expert, &cost, fault);
    if (result == 0)
        result = verify(worker, read, expert, length, fault);
    if (result < 0)
        return result;
    account(worker, length, cost.latency_ns);
    return 0;
}

void pt_worker_reset(struct pt_worker *worker)
{
    atomic_store(&worker->reads, 0);
    atomic_store(&worker->bytes, 0);
    worker->verified_reads = 0;
    worker->content_hash = 0;
    worker->record = 0;
    worker->iteration = 0;
    memset(worker->sums, 0, sizeof worker->sums);
    memset(worker->latency_histogram, 0, sizeof worker->latency_histogram);
}
