/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arena.h"
#include "check.h"
#include "clock.h"
#include "files.h"
#include "futex.h"
#include "prefetch.h"
#include "residency.h"
#include "schedule.h"
#include "threads.h"
#include "worker.h"

/* A thread of a reader. */
struct lane {
    struct pt_worker worker;
    struct pt_reader *reader;
};

struct pt_reader {
    struct pt_schedule schedule;
    _Alignas(PT_APART) _Atomic uint32_t ready; /* threads that wait for the clock to start */
    _Atomic uint32_t failed;
    _Atomic uint32_t cancelled;
    _Atomic uint32_t busy;
    struct pt_work work;
    struct pt_options options;
    struct pt_files files;
    struct lane *lanes;
    uint64_t buffer_bytes;
    int result; /* of the first failure */
    struct pt_fault fault;
};

/* ---- What is wrong with the arrays of a caller ---- */

static int check_options(const struct pt_options *options, struct pt_fault *fault)
{
    if (options->threads == 0 || options->mode > PT_DROP_BEHIND ||
        options->barrier > PT_BARRIER_NONE || options->advice > PT_ADVICE_SEQUENTIAL ||
        options->residency > PT_RESIDENCY_MINCORE || options->delivery > PT_DELIVERY_BLOCKING)
        return pt_invalid(fault, "options", 0);
    /* What hints bring would be read once more. */
    if (options->mode == PT_DIRECT && options->delivery != PT_DELIVERY_NONE)
        return pt_invalid(fault, "options", 0);
    return 0;
}

static int check_plan(const struct pt_plan *plan, uint32_t num_experts, struct pt_fault *fault)
{
    for (uint64_t i = 0; i < plan->num_reads; i++)
        if (plan->experts[i] >= num_experts)
            return pt_invalid(fault, "experts", i);
    int result = pt_check_bounds(plan->record_start, plan->num_records, plan->num_reads,
                                 "record_start", fault);
    if (result < 0)
        return result;
    return pt_check_bounds(plan->iteration_start, plan->num_iterations, plan->num_records,
                           "iteration_start", fault);
}

/* What lies in the arena would be brought into the page cache for nothing. */
static int check_hints(const struct pt_hints *hints, const struct pt_plan *plan,
                       const struct pt_work *work, struct pt_fault *fault)
{
    if (!hints != !work->prefetch)
        return pt_invalid(fault, "hints", 0);
    if (!hints)
        return 0;
    for (uint64_t i = 0; i < hints->num_experts; i++)
        if (hints->experts[i] >= work->pool->num_experts ||
            (work->arena && pt_arena_find(work->arena, hints->experts[i])))
            return pt_invalid(fault, "hint_experts", i);
    return pt_check_bounds(hints->start, plan->num_records, hints->num_experts, "hint_start",
                           fault);
}

/* ---- Threads ---- */

static void stop(struct pt_reader *reader)
{
    pt_schedule_stop(&reader->schedule);
    if (reader->work.prefetch)
        pt_prefetch_abandon(reader->work.prefetch);
}

static void report_failure(struct pt_reader *reader, int result, const struct pt_fault *fault)
{
    if (atomic_exchange(&reader->failed, 1) == 0) {
        reader->result = result;
        reader->fault = *fault;
    }
    stop(reader);
}

static void *read_all(void *argument)
{
    struct lane *lane = argument;
    struct pt_reader *reader = lane->reader;
    struct pt_worker *worker = &lane->worker;
    struct pt_turn turn;
    struct pt_fault fault;

    atomic_fetch_add(&reader->ready, 1);
    pt_futex_wake(&reader->ready, 1);
    while (pt_schedule_take(&reader->schedule, &turn)) {
        int result = pt_worker_read(worker, turn.read, &fault);

        if (result < 0) {
            report_failure(reader, result, &fault);
            break;
        }
        pt_schedule_complete(&reader->schedule, &turn);
    }
    pt_worker_flush(worker);
    /* All of it: a thread lives for one replay. */
    pt_thread_cpu(&worker->user_ns, &worker->system_ns);
    return NULL;
}

static int start_threads(struct pt_reader *reader, uint32_t *started)
{
    for (*started = 0; *started < reader->options.threads; ++*started) {
        struct lane *lane = &reader->lanes[*started];
        int result = pt_thread_start(&lane->worker.thread, read_all, lane);

        if (result < 0)
            return result;
    }
    return 0;
}

static void wait_ready(struct pt_reader *reader, uint32_t count)
{
    uint32_t ready;

    while ((ready = atomic_load(&reader->ready)) < count)
        pt_futex_wait(&reader->ready, ready);
}

static void join_threads(struct pt_reader *reader, uint32_t count)
{
    struct pt_pass *pass = reader->work.pass;

    for (uint32_t i = 0; i < count; i++) {
        struct pt_worker *worker = &reader->lanes[i].worker;

        pthread_join(worker->thread, NULL);
        pass->user_ns += worker->user_ns;
        pass->system_ns += worker->system_ns;
        pass->verified_reads += worker->verified_reads;
        pass->content_hash += worker->content_hash;
        for (uint32_t b = 0; b < PT_HISTOGRAM_BUCKETS; b++)
            pass->latency_histogram[b] += worker->latency_histogram[b];
    }
}

static int read_plan(struct pt_reader *reader, struct pt_fault *fault)
{
    uint32_t started;
    int result = start_threads(reader, &started);

    if (result < 0)
        stop(reader);
    wait_ready(reader, started);
    reader->work.pass->start_ns = pt_now_ns();
    pt_schedule_start(&reader->schedule);
    join_threads(reader, started);
    return result < 0 ? pt_fail(fault, result, "pthread_create", PT_NONE, 0) : 0;
}

static int run_threads(struct pt_reader *reader, struct pt_fault *fault)
{
    struct pt_prefetch *prefetch = reader->work.prefetch;

    if (!prefetch)
        return read_plan(reader, fault);
    int result = pt_prefetch_start(prefetch);
    if (result < 0)
        return pt_fail(fault, result, "pthread_create", PT_NONE, 0);
    result = read_plan(reader, fault);
    pt_prefetch_finish(prefetch);
    return result;
}

/* ---- One replay ---- */

static void reset_pass(struct pt_pass *pass, uint64_t num_iterations)
{
    size_t bytes = num_iterations * sizeof(uint64_t);

    memset(pass->iteration_end_ns, 0, bytes);
    memset(pass->sums, 0, PT_COLUMNS * bytes);
    memset(pass->latency_histogram, 0, PT_HISTOGRAM_BUCKETS * sizeof(uint64_t));
    pass->user_ns = 0;
    pass->system_ns = 0;
    pass->verified_reads = 0;
    pass->content_hash = 0;
    pass->hint_busy_ns = 0;
    pass->hint_user_ns = 0;
    pass->hint_system_ns = 0;
    pass->hint_unused_bytes = 0;
    pass->hint_result = 0;
}

static int find_iterations(struct pt_work *work)
{
    const struct pt_plan *plan = work->plan;
    uint64_t empty = 0;

    work->iteration_read_start = calloc(plan->num_iterations + 1, sizeof(uint64_t));
    work->iteration_left = calloc(plan->num_iterations + 1, sizeof(uint64_t));
    if (!work->iteration_read_start || !work->iteration_left)
        return -ENOMEM;
    for (uint64_t i = 0; i <= plan->num_iterations; i++)
        work->iteration_read_start[i] = plan->record_start[plan->iteration_start[i]];
    for (uint64_t i = 0; i < plan->num_iterations; i++) {
        uint64_t reads = work->iteration_read_start[i + 1] - work->iteration_read_start[i];

        atomic_store(&work->iteration_left[i], reads);
        empty += reads == 0;
    }
    atomic_store(&work->iterations_done, empty);
    return 0;
}

static int make_schedule(struct pt_reader *reader, const uint64_t whole_plan[2])
{
    const struct pt_plan *plan = reader->work.plan;

    switch (reader->options.barrier) {
    case PT_BARRIER_RECORD:
        return pt_schedule_init(&reader->schedule, plan->record_start, plan->num_records);
    case PT_BARRIER_ITERATION:
        return pt_schedule_init(&reader->schedule, reader->work.iteration_read_start,
                                plan->num_iterations);
    default:
        return pt_schedule_init(&reader->schedule, whole_plan, 1);
    }
}

/* An iteration is over when its own reads and those before are; without a barrier they overlap. */
static void order_ends(struct pt_pass *pass, uint64_t num_iterations)
{
    uint64_t end = pass->start_ns;

    for (uint64_t i = 0; i < num_iterations; i++) {
        if (end < pass->iteration_end_ns[i])
            end = pass->iteration_end_ns[i];
        pass->iteration_end_ns[i] = end;
    }
}

static uint64_t reads_done(const struct pt_reader *reader)
{
    uint64_t reads = 0;

    for (uint32_t i = 0; i < reader->options.threads; i++)
        reads += atomic_load_explicit(&reader->lanes[i].worker.reads, memory_order_relaxed);
    return reads;
}

static int outcome(struct pt_reader *reader, struct pt_fault *fault)
{
    if (atomic_load(&reader->failed)) {
        *fault = reader->fault;
        return reader->result;
    }
    if (reads_done(reader) < reader->work.plan->num_reads)
        return pt_fail(fault, -ECANCELED, "replay", PT_NONE, 0);
    return 0;
}

static int replay_scheduled(struct pt_reader *reader, struct pt_fault *fault)
{
    /* After everything that a stop needs was made, and asked in the order opposite to
     * pt_reader_cancel's. */
    if (atomic_load(&reader->cancelled))
        return pt_fail(fault, -ECANCELED, "replay", PT_NONE, 0);
    int result = pt_files_begin(&reader->files, fault);
    if (result < 0)
        return result;
    result = run_threads(reader, fault);
    if (result == 0)
        result = outcome(reader, fault);
    struct pt_fault end_fault = {.expert = PT_NONE};
    int end_result = pt_files_end(&reader->files, &end_fault);
    if (result == 0 && end_result < 0) {
        *fault = end_fault;
        result = end_result;
    }
    return result;
}

static int prepare(struct pt_reader *reader, const struct pt_hints *hints,
                   const uint64_t whole_plan[2])
{
    struct pt_work *work = &reader->work;

    atomic_store(&reader->ready, 0);
    atomic_store(&reader->failed, 0);
    for (uint32_t i = 0; i < reader->options.threads; i++)
        pt_worker_reset(&reader->lanes[i].worker);
    reset_pass(work->pass, work->plan->num_iterations);
    int result = find_iterations(work);
    if (result == 0 && hints)
        result = pt_prefetch_begin(work->prefetch, work->plan, hints, work->pass);
    return result == 0 ? make_schedule(reader, whole_plan) : result;
}

static int replay(struct pt_reader *reader, const struct pt_hints *hints, struct pt_fault *fault)
{
    const uint64_t whole_plan[2] = {0, reader->work.plan->num_reads};
    int result = prepare(reader, hints, whole_plan);

    if (result < 0)
        return pt_fail(fault, result, "replay", PT_NONE, 0);
    result = replay_scheduled(reader, fault);
    order_ends(reader->work.pass, reader->work.plan->num_iterations);
    return result;
}

int pt_reader_replay(struct pt_reader *reader, const struct pt_plan *plan,
                     const struct pt_hints *hints, struct pt_pass *pass, struct pt_fault *fault)
{
    struct pt_work *work = &reader->work;

    *fault = (struct pt_fault){.file = PT_NONE, .expert = PT_NONE};
    int result = check_plan(plan, work->pool->num_experts, fault);
    if (result == 0)
        result = check_hints(hints, plan, work, fault);
    if (result < 0)
        return result;
    if (atomic_exchange(&reader->busy, 1))
        return pt_fail(fault, -EBUSY, "replay", PT_NONE, 0);
    work->plan = plan;
    work->pass = pass;
    result = replay(reader, hints, fault);
    free(work->iteration_read_start);
    free(work->iteration_left);
    work->iteration_read_start = NULL;
    work->iteration_left = NULL;
    atomic_store(&reader->busy, 0);
    return result;
}

void pt_reader_progress(const struct pt_reader *reader, struct pt_progress *progress)
{
    progress->reads = reads_done(reader);
    progress->bytes = 0;
    for (uint32_t i = 0; i < reader->options.threads; i++)
        progress->bytes +=
            atomic_load_explicit(&reader->lanes[i].worker.bytes, memory_order_relaxed);
    progress->iterations =
        atomic_load_explicit(&reader->work.iterations_done, memory_order_relaxed);
}

void pt_reader_cancel(struct pt_reader *reader)
{
    atomic_store(&reader->cancelled, 1);
    stop(reader);
}

/* ---- Opening and closing ---- */

/* One page-aligned destination per thread, of memory that is there before the first read. */
static int map_buffers(struct pt_reader *reader, struct pt_fault *fault)
{
    uint64_t page = pt_page_bytes();
    int result = pt_pool_largest_expert(reader->work.pool, &reader->buffer_bytes, fault);

    if (result < 0)
        return result;
    reader->buffer_bytes = (reader->buffer_bytes / page + 1) * page;
    for (uint32_t i = 0; i < reader->options.threads; i++) {
        void *buffer = mmap(NULL, reader->buffer_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (buffer == MAP_FAILED)
            return pt_fail(fault, -errno, "mmap", PT_NONE, 0);
        reader->lanes[i].worker.buffer = buffer;
    }
    return 0;
}

static int open_files(struct pt_reader *reader, struct pt_fault *fault)
{
    const struct pt_options *options = &reader->options;
    int result = pt_files_open(&reader->files, reader->work.pool, options,
                               (uint32_t)pt_page_bytes(), fault);

    if (result < 0 || options->delivery == PT_DELIVERY_NONE)
        return result;
    return pt_prefetch_open(reader->work.pool, options, &reader->files, &reader->work.prefetch,
                            fault);
}

static struct pt_reader *allocate_reader(const struct pt_pool *pool,
                                         const struct pt_options *options)
{
    size_t lanes_bytes = options->threads * sizeof(struct lane);
    struct pt_reader *reader = aligned_alloc(PT_APART, sizeof *reader);

    if (!reader)
        return NULL;
    memset(reader, 0, sizeof *reader);
    reader->options = *options;
    reader->work.pool = pool;
    reader->work.files = &reader->files;
    reader->files.pool = pool;
    reader->lanes = aligned_alloc(PT_APART, lanes_bytes);
    reader->work.touched = calloc(pool->num_experts + (size_t)1, 1);
    if (!reader->lanes || !reader->work.touched) {
        free(reader->work.touched);
        free(reader->lanes);
        free(reader);
        return NULL;
    }
    memset(reader->lanes, 0, lanes_bytes);
    for (uint32_t i = 0; i < options->threads; i++) {
        reader->lanes[i].reader = reader;
        reader->lanes[i].worker.work = &reader->work;
        reader->lanes[i].worker.index = i;
    }
    return reader;
}

int pt_reader_descriptors(const struct pt_pool *pool, const struct pt_options *options,
                          uint64_t *descriptors, struct pt_fault *fault)
{
    *fault = (struct pt_fault){.file = PT_NONE, .expert = PT_NONE};
    int result = check_options(options, fault);
    if (result == 0)
        result = pt_pool_check(pool, fault);
    if (result < 0)
        return result;
    result = pt_files_descriptors(pool, options, descriptors);
    return result < 0 ? pt_fail(fault, result, "calloc", PT_NONE, 0) : 0;
}

uint32_t pt_reader_kept_files(const struct pt_reader *reader)
{
    return reader->files.num_kept;
}

int pt_reader_open(const struct pt_pool *pool, const struct pt_options *options,
                   const struct pt_arena *arena, struct pt_reader **reader,
                   struct pt_fault *fault)
{
    *fault = (struct pt_fault){.file = PT_NONE, .expert = PT_NONE};
    int result = check_options(options, fault);
    if (result == 0)
        result = pt_pool_check(pool, fault);
    if (result < 0)
        return result;
    struct pt_reader *made = allocate_reader(pool, options);
    if (!made)
        return pt_fail(fault, -ENOMEM, "calloc", PT_NONE, 0);
    made->work.arena = arena;
    result = map_buffers(made, fault);
    if (result == 0)
        result = open_files(made, fault);
    if (result < 0) {
        pt_reader_close(made);
        return result;
    }
    *reader = made;
    return 0;
}

void pt_reader_close(struct pt_reader *reader)
{
    if (reader->work.prefetch)
        pt_prefetch_close(reader->work.prefetch);
    pt_files_close(&reader->files);
    for (uint32_t i = 0; i < reader->options.threads; i++)
        if (reader->lanes[i].worker.buffer)
            munmap(reader->lanes[i].worker.buffer, reader->buffer_bytes);
    free(reader->work.touched);
    free(reader->lanes);
    free(reader);
}
