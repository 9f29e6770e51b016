/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "content.h"
#include "files.h"
#include "futex.h"
#include "histogram.h"
#include "residency.h"
#include "schedule.h"

struct worker {
    /* Written by this thread alone, read by pt_reader_progress. */
    _Alignas(PT_APART) _Atomic uint64_t reads;
    _Atomic uint64_t bytes;
    struct pt_reader *reader;
    uint32_t index;
    unsigned char *buffer;
    pthread_t thread;
    uint64_t user_ns;
    uint64_t system_ns;
    uint64_t verified_reads;
    /* Sums of the iteration this thread is in, added to the pass when it moves on. */
    uint64_t iteration;
    uint64_t sum_reads;
    uint64_t sum_bytes;
    uint64_t sum_first_bytes;
    uint64_t sum_repeat_bytes;
    uint64_t latency_histogram[PT_HISTOGRAM_BUCKETS];
};

struct pt_reader {
    struct pt_schedule schedule;
    _Alignas(PT_APART) _Atomic uint32_t ready; /* threads that wait for the clock to start */
    _Atomic uint32_t failed;
    _Atomic uint32_t cancelled;
    _Atomic uint32_t busy;
    _Atomic uint64_t iterations_done;
    /* Constant during a replay. */
    _Alignas(PT_APART) const struct pt_pool *pool;
    struct pt_options options;
    struct pt_files files;
    struct worker *workers;
    uint64_t buffer_bytes;
    unsigned char *touched; /* per expert: read before through this reader */
    const struct pt_plan *plan;
    struct pt_pass *pass;
    uint64_t *iteration_read_start;  /* first read of each iteration, and one past the last */
    _Atomic uint64_t *iteration_left; /* reads to complete */
    int result; /* of the first failure */
    struct pt_fault fault;
};

/* ---- What is wrong with the arrays of a caller ---- */

static int invalid(struct pt_fault *fault, const char *array, uint64_t index)
{
    return pt_fail(fault, -EINVAL, array, PT_NONE, index);
}

/* `bounds` has `count` + 1 entries: from 0 to `end`, never falling. */
static int check_bounds(const uint64_t *bounds, uint64_t count, uint64_t end, const char *array,
                        struct pt_fault *fault)
{
    if (bounds[0] != 0)
        return invalid(fault, array, 0);
    for (uint64_t i = 0; i < count; i++)
        if (bounds[i + 1] < bounds[i])
            return invalid(fault, array, i + 1);
    return bounds[count] == end ? 0 : invalid(fault, array, count);
}

static int check_pool(const struct pt_pool *pool, struct pt_fault *fault)
{
    for (uint64_t i = 0; i < pool->num_extents; i++) {
        const struct pt_extent *extent = &pool->extents[i];

        if (extent->file >= pool->num_files || extent->length > INT64_MAX ||
            extent->offset > INT64_MAX - extent->length)
            return invalid(fault, "extents", i);
    }
    return check_bounds(pool->expert_start, pool->num_experts, pool->num_extents, "expert_start",
                        fault);
}

static int check_options(const struct pt_options *options, struct pt_fault *fault)
{
    if (options->threads == 0 || options->mode > PT_MMAP || options->barrier > PT_BARRIER_NONE ||
        options->advice > PT_ADVICE_SEQUENTIAL || options->residency > PT_RESIDENCY_MINCORE)
        return invalid(fault, "options", 0);
    /* There is no descriptor left to ask about. */
    if (options->mode == PT_MMAP && options->residency == PT_RESIDENCY_CACHESTAT)
        return invalid(fault, "options", 0);
    return 0;
}

static int check_plan(const struct pt_plan *plan, uint32_t num_experts, struct pt_fault *fault)
{
    for (uint64_t i = 0; i < plan->num_reads; i++)
        if (plan->experts[i] >= num_experts)
            return invalid(fault, "experts", i);
    int result = check_bounds(plan->record_start, plan->num_records, plan->num_reads,
                              "record_start", fault);
    if (result < 0)
        return result;
    return check_bounds(plan->iteration_start, plan->num_iterations, plan->num_records,
                        "iteration_start", fault);
}

/* ---- Reading one expert ---- */

static void report_failure(struct worker *worker, int result, const struct pt_fault *fault)
{
    struct pt_reader *reader = worker->reader;

    if (atomic_exchange(&reader->failed, 1) == 0) {
        reader->result = result;
        reader->fault = *fault;
    }
    pt_schedule_stop(&reader->schedule);
}

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

static int verify(struct worker *worker, uint64_t read, uint32_t expert, uint64_t length,
                  struct pt_fault *fault)
{
    const struct pt_pass *pass = worker->reader->pass;

    if (pass->verify_every == 0 || read % pass->verify_every != 0)
        return 0;
    size_t agrees =
        pt_content_mismatch(worker->buffer, length, pass->content_seed, expert, 0);
    if (agrees < length)
        return wrong_content(worker->reader->pool, expert, agrees, fault);
    worker->verified_reads++;
    return 0;
}

static void add_to(uint64_t *total, uint64_t amount)
{
    if (amount)
        __atomic_add_fetch(total, amount, __ATOMIC_RELAXED);
}

static void flush_sums(struct worker *worker)
{
    const struct pt_pass *pass = worker->reader->pass;
    uint64_t i = worker->iteration;

    if (worker->sum_reads == 0)
        return;
    add_to(&pass->iteration_reads[i], worker->sum_reads);
    add_to(&pass->iteration_bytes[i], worker->sum_bytes);
    add_to(&pass->iteration_first_bytes[i], worker->sum_first_bytes);
    add_to(&pass->iteration_repeat_bytes[i], worker->sum_repeat_bytes);
    worker->sum_reads = 0;
    worker->sum_bytes = 0;
    worker->sum_first_bytes = 0;
    worker->sum_repeat_bytes = 0;
}

static void enter_iteration(struct worker *worker, uint64_t read)
{
    const uint64_t *read_start = worker->reader->iteration_read_start;

    if (read < read_start[worker->iteration + 1])
        return;
    flush_sums(worker);
    while (read >= read_start[worker->iteration + 1])
        worker->iteration++;
}

/* A counter with one writer needs no locked instruction. */
static void advance(_Atomic uint64_t *counter, uint64_t amount)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, before + amount, memory_order_relaxed);
}

static void account_absent(struct worker *worker, uint32_t expert, uint64_t absent_bytes)
{
    /* Looked at first: a line that is only read may stay in the caches of all threads. */
    unsigned char *touched = &worker->reader->touched[expert];
    bool again = __atomic_load_n(touched, __ATOMIC_RELAXED) ||
                 __atomic_exchange_n(touched, 1, __ATOMIC_RELAXED);

    if (again)
        worker->sum_repeat_bytes += absent_bytes;
    else
        worker->sum_first_bytes += absent_bytes;
}

static void account(struct worker *worker, uint32_t expert, uint64_t length,
                    const struct pt_cost *cost)
{
    struct pt_reader *reader = worker->reader;

    worker->sum_reads++;
    worker->sum_bytes += length;
    if (reader->options.residency != PT_RESIDENCY_OFF)
        account_absent(worker, expert, cost->absent_bytes);
    worker->latency_histogram[pt_histogram_bucket(cost->latency_ns)]++;
    advance(&worker->reads, 1);
    advance(&worker->bytes, length);
    if (atomic_fetch_sub(&reader->iteration_left[worker->iteration], 1) != 1)
        return;
    reader->pass->iteration_end_ns[worker->iteration] = pt_now_ns();
    atomic_fetch_add_explicit(&reader->iterations_done, 1, memory_order_relaxed);
}

static int read_expert(struct worker *worker, uint64_t read, struct pt_fault *fault)
{
    const struct pt_pool *pool = worker->reader->pool;
    uint32_t expert = worker->reader->plan->experts[read];
    struct pt_cost cost = {0, 0};
    uint64_t length = 0;

    fault->expert = expert;
    enter_iteration(worker, read);
    for (uint64_t i = pool->expert_start[expert]; i < pool->expert_start[expert + 1]; i++) {
        int result = pt_files_read(&worker->reader->files, worker->index, &pool->extents[i],
                                   worker->buffer + length, &cost, fault);
        if (result < 0)
            return result;
        length += pool->extents[i].length;
    }
    int result = verify(worker, read, expert, length, fault);
    if (result < 0)
        return result;
    account(worker, expert, length, &cost);
    return 0;
}

/* ---- Threads ---- */

static uint64_t timeval_ns(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_usec * 1000u;
}

static void *read_all(void *argument)
{
    struct worker *worker = argument;
    struct pt_reader *reader = worker->reader;
    struct pt_turn turn;
    struct pt_fault fault;
    struct rusage usage;

    atomic_fetch_add(&reader->ready, 1);
    pt_futex_wake(&reader->ready, 1);
    while (pt_schedule_take(&reader->schedule, &turn)) {
        int result = read_expert(worker, turn.read, &fault);

        if (result < 0) {
            report_failure(worker, result, &fault);
            break;
        }
        pt_schedule_complete(&reader->schedule, &turn);
    }
    flush_sums(worker);
    getrusage(RUSAGE_THREAD, &usage); /* all of it: a thread lives for one replay */
    worker->user_ns = timeval_ns(&usage.ru_utime);
    worker->system_ns = timeval_ns(&usage.ru_stime);
    return NULL;
}

/* All but the faults of the thread itself: signals to the process are for the caller's threads. */
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t blocked;

    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, before);
}

static int start_threads(struct pt_reader *reader, uint32_t *started)
{
    sigset_t before;
    int result = 0;

    block_signals(&before);
    for (*started = 0; *started < reader->options.threads; ++*started) {
        struct worker *worker = &reader->workers[*started];

        result = -pthread_create(&worker->thread, NULL, read_all, worker);
        if (result < 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

static void wait_ready(struct pt_reader *reader, uint32_t count)
{
    uint32_t ready;

    while ((ready = atomic_load(&reader->ready)) < count)
        pt_futex_wait(&reader->ready, ready);
}

static void join_threads(struct pt_reader *reader, uint32_t count)
{
    struct pt_pass *pass = reader->pass;

    for (uint32_t i = 0; i < count; i++) {
        struct worker *worker = &reader->workers[i];

        pthread_join(worker->thread, NULL);
        pass->user_ns += worker->user_ns;
        pass->system_ns += worker->system_ns;
        pass->verified_reads += worker->verified_reads;
        for (uint32_t b = 0; b < PT_HISTOGRAM_BUCKETS; b++)
            pass->latency_histogram[b] += worker->latency_histogram[b];
    }
}

static int run_threads(struct pt_reader *reader, struct pt_fault *fault)
{
    uint32_t started;
    int result = start_threads(reader, &started);

    if (result < 0)
        pt_schedule_stop(&reader->schedule);
    wait_ready(reader, started);
    reader->pass->start_ns = pt_now_ns();
    pt_schedule_start(&reader->schedule);
    join_threads(reader, started);
    return result < 0 ? pt_fail(fault, result, "pthread_create", PT_NONE, 0) : 0;
}

/* ---- One replay ---- */

static void reset_workers(struct pt_reader *reader)
{
    for (uint32_t i = 0; i < reader->options.threads; i++) {
        struct worker *worker = &reader->workers[i];

        atomic_store(&worker->reads, 0);
        atomic_store(&worker->bytes, 0);
        worker->verified_reads = 0;
        worker->iteration = 0;
        memset(worker->latency_histogram, 0, sizeof worker->latency_histogram);
    }
}

static void reset_pass(struct pt_pass *pass, uint64_t num_iterations)
{
    size_t bytes = num_iterations * sizeof(uint64_t);

    memset(pass->iteration_end_ns, 0, bytes);
    memset(pass->iteration_bytes, 0, bytes);
    memset(pass->iteration_reads, 0, bytes);
    memset(pass->iteration_first_bytes, 0, bytes);
    memset(pass->iteration_repeat_bytes, 0, bytes);
    memset(pass->latency_histogram, 0, PT_HISTOGRAM_BUCKETS * sizeof(uint64_t));
    pass->user_ns = 0;
    pass->system_ns = 0;
    pass->verified_reads = 0;
}

static int find_iterations(struct pt_reader *reader)
{
    const struct pt_plan *plan = reader->plan;
    uint64_t empty = 0;

    reader->iteration_read_start = calloc(plan->num_iterations + 1, sizeof(uint64_t));
    reader->iteration_left = calloc(plan->num_iterations + 1, sizeof(uint64_t));
    if (!reader->iteration_read_start || !reader->iteration_left)
        return -ENOMEM;
    for (uint64_t i = 0; i <= plan->num_iterations; i++)
        reader->iteration_read_start[i] = plan->record_start[plan->iteration_start[i]];
    for (uint64_t i = 0; i < plan->num_iterations; i++) {
        uint64_t reads = reader->iteration_read_start[i + 1] - reader->iteration_read_start[i];

        atomic_store(&reader->iteration_left[i], reads);
        empty += reads == 0;
    }
    atomic_store(&reader->iterations_done, empty);
    return 0;
}

static int make_schedule(struct pt_reader *reader, const uint64_t whole_plan[2])
{
    const struct pt_plan *plan = reader->plan;

    switch (reader->options.barrier) {
    case PT_BARRIER_RECORD:
        return pt_schedule_init(&reader->schedule, plan->record_start, plan->num_records);
    case PT_BARRIER_ITERATION:
        return pt_schedule_init(&reader->schedule, reader->iteration_read_start,
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
        reads += atomic_load_explicit(&reader->workers[i].reads, memory_order_relaxed);
    return reads;
}

static int outcome(struct pt_reader *reader, struct pt_fault *fault)
{
    if (atomic_load(&reader->failed)) {
        *fault = reader->fault;
        return reader->result;
    }
    if (reads_done(reader) < reader->plan->num_reads)
        return pt_fail(fault, -ECANCELED, "replay", PT_NONE, 0);
    return 0;
}

static int replay_scheduled(struct pt_reader *reader, struct pt_fault *fault)
{
    /* After the schedule was made, and asked in the order opposite to pt_reader_cancel's. */
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

static int replay(struct pt_reader *reader, struct pt_fault *fault)
{
    const uint64_t whole_plan[2] = {0, reader->plan->num_reads};

    atomic_store(&reader->ready, 0);
    atomic_store(&reader->failed, 0);
    reset_workers(reader);
    reset_pass(reader->pass, reader->plan->num_iterations);
    int result = find_iterations(reader);
    if (result == 0)
        result = make_schedule(reader, whole_plan);
    if (result < 0)
        return pt_fail(fault, result, "replay", PT_NONE, 0);
    result = replay_scheduled(reader, fault);
    order_ends(reader->pass, reader->plan->num_iterations);
    return result;
}

int pt_reader_replay(struct pt_reader *reader, const struct pt_plan *plan, struct pt_pass *pass,
                     struct pt_fault *fault)
{
    *fault = (struct pt_fault){.file = PT_NONE, .expert = PT_NONE};
    int result = check_plan(plan, reader->pool->num_experts, fault);
    if (result < 0)
        return result;
    if (atomic_exchange(&reader->busy, 1))
        return pt_fail(fault, -EBUSY, "replay", PT_NONE, 0);
    reader->plan = plan;
    reader->pass = pass;
    result = replay(reader, fault);
    free(reader->iteration_read_start);
    free(reader->iteration_left);
    reader->iteration_read_start = NULL;
    reader->iteration_left = NULL;
    atomic_store(&reader->busy, 0);
    return result;
}

void pt_reader_progress(const struct pt_reader *reader, struct pt_progress *progress)
{
    progress->reads = reads_done(reader);
    progress->bytes = 0;
    for (uint32_t i = 0; i < reader->options.threads; i++)
        progress->bytes += atomic_load_explicit(&reader->workers[i].bytes, memory_order_relaxed);
    progress->iterations = atomic_load_explicit(&reader->iterations_done, memory_order_relaxed);
}

void pt_reader_cancel(struct pt_reader *reader)
{
    atomic_store(&reader->cancelled, 1);
    pt_schedule_stop(&reader->schedule);
}

/* ---- Opening and closing ---- */

static int largest_expert(const struct pt_pool *pool, uint64_t *bytes, struct pt_fault *fault)
{
    *bytes = 0;
    for (uint32_t e = 0; e < pool->num_experts; e++) {
        uint64_t length = 0;

        for (uint64_t i = pool->expert_start[e]; i < pool->expert_start[e + 1]; i++)
            if (__builtin_add_overflow(length, pool->extents[i].length, &length) ||
                length > INT64_MAX)
                return invalid(fault, "extents", i);
        if (*bytes < length)
            *bytes = length;
    }
    return 0;
}

/* One page-aligned destination per thread, of memory that is there before the first read. */
static int map_buffers(struct pt_reader *reader, struct pt_fault *fault)
{
    uint64_t page = pt_page_bytes();
    int result = largest_expert(reader->pool, &reader->buffer_bytes, fault);

    if (result < 0)
        return result;
    reader->buffer_bytes = (reader->buffer_bytes / page + 1) * page;
    for (uint32_t i = 0; i < reader->options.threads; i++) {
        void *buffer = mmap(NULL, reader->buffer_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (buffer == MAP_FAILED)
            return pt_fail(fault, -errno, "mmap", PT_NONE, 0);
        reader->workers[i].buffer = buffer;
    }
    return 0;
}

static struct pt_reader *allocate_reader(const struct pt_pool *pool,
                                         const struct pt_options *options)
{
    size_t workers_bytes = options->threads * sizeof(struct worker);
    struct pt_reader *reader = aligned_alloc(PT_APART, sizeof *reader);

    if (!reader)
        return NULL;
    memset(reader, 0, sizeof *reader);
    reader->pool = pool;
    reader->options = *options;
    reader->workers = aligned_alloc(PT_APART, workers_bytes);
    reader->touched = calloc(pool->num_experts + (size_t)1, 1);
    reader->files.pool = pool;
    if (!reader->workers || !reader->touched) {
        free(reader->touched);
        free(reader->workers);
        free(reader);
        return NULL;
    }
    memset(reader->workers, 0, workers_bytes);
    for (uint32_t i = 0; i < options->threads; i++) {
        reader->workers[i].reader = reader;
        reader->workers[i].index = i;
    }
    return reader;
}

int pt_reader_descriptors(const struct pt_pool *pool, uint32_t threads, uint64_t *descriptors,
                          struct pt_fault *fault)
{
    *fault = (struct pt_fault){.file = PT_NONE, .expert = PT_NONE};
    int result = check_pool(pool, fault);
    if (result < 0)
        return result;
    result = pt_files_descriptors(pool, threads, descriptors);
    return result < 0 ? pt_fail(fault, result, "calloc", PT_NONE, 0) : 0;
}

uint32_t pt_reader_kept_files(const struct pt_reader *reader)
{
    return reader->files.num_kept;
}

int pt_reader_open(const struct pt_pool *pool, const struct pt_options *options,
                   struct pt_reader **reader, struct pt_fault *fault)
{
    *fault = (struct pt_fault){.file = PT_NONE, .expert = PT_NONE};
    int result = check_options(options, fault);
    if (result == 0)
        result = check_pool(pool, fault);
    if (result < 0)
        return result;
    struct pt_reader *made = allocate_reader(pool, options);
    if (!made)
        return pt_fail(fault, -ENOMEM, "calloc", PT_NONE, 0);
    result = map_buffers(made, fault);
    if (result == 0)
        result = pt_files_open(&made->files, pool, options, fault);
    if (result < 0) {
        pt_reader_close(made);
        return result;
    }
    *reader = made;
    return 0;
}

void pt_reader_close(struct pt_reader *reader)
{
    pt_files_close(&reader->files);
    for (uint32_t i = 0; i < reader->options.threads; i++)
        if (reader->workers[i].buffer)
            munmap(reader->workers[i].buffer, reader->buffer_bytes);
    free(reader->touched);
    free(reader->workers);
    free(reader);
}
