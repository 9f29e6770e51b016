/* SPDX-License-Identifier: Apache-2.0 */
/* One reading thread's part of a replay: its buffer, its counters, one read after the other. */
#ifndef PAGETIER_WORKER_H
#define PAGETIER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "files.h"
#include "histogram.h"
#include "prefetch.h"
#include "reader.h"
#include "schedule.h"

/* What the threads of a replay share; constant meanwhile but for the counters. */
struct pt_work {
    _Alignas(PT_APART) _Atomic uint64_t iterations_done;
    _Alignas(PT_APART) const struct pt_pool *pool;
    const struct pt_files *files;
    const struct pt_arena *arena;  /* or NULL */
    struct pt_prefetch *prefetch;  /* or NULL */
    unsigned char *touched; /* per expert: read before through this reader */
    const struct pt_plan *plan;
    struct pt_pass *pass;
    uint64_t *iteration_read_start;   /* first read of each iteration, and one past the last */
    _Atomic uint64_t *iteration_left; /* reads to complete */
};

struct pt_worker {
    /* Written by this thread alone, read by pt_reader_progress. */
    _Alignas(PT_APART) _Atomic uint64_t reads;
    _Atomic uint64_t bytes;
    struct pt_work *work;
    uint32_t index;
    unsigned char *buffer;
    pthread_t thread;
    uint64_t user_ns;
    uint64_t system_ns;
    uint64_t verified_reads;
    uint64_t content_hash;
    uint64_t record; /* of this thread's newest read; kept where there are hints */
    /* Sums of the iteration this thread is in, added to the pass when it moves on. */
    uint64_t iteration;
    uint64_t sums[PT_COLUMNS];
    uint64_t latency_histogram[PT_HISTOGRAM_BUCKETS];
};

void pt_worker_reset(struct pt_worker *worker);
int pt_worker_read(struct pt_worker *worker, uint64_t read, struct pt_fault *fault);
/* After the last read: what is not yet in the pass. */
void pt_worker_flush(struct pt_worker *worker);

#endif
