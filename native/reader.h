/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a plan of expert reads with a pool of threads. */
#ifndef PAGETIER_READER_H
#define PAGETIER_READER_H

#include <stdint.h>

#include "pool.h"

/* One way of bringing an expert's bytes into a thread's buffer each: source_*.c. */
enum pt_mode {
    PT_PREAD = 0,
    PT_MMAP = 1,
    PT_POPULATE = 2,
    PT_DIRECT = 3,
    PT_DONTCACHE = 4,
    PT_DROP_BEHIND = 5
};
enum pt_barrier { PT_BARRIER_RECORD = 0, PT_BARRIER_ITERATION = 1, PT_BARRIER_NONE = 2 };
enum pt_advice { PT_ADVICE_DEFAULT = 0, PT_ADVICE_RANDOM = 1, PT_ADVICE_SEQUENTIAL = 2 };
/* How the residency of an extent is asked for just before its read. */
enum pt_residency { PT_RESIDENCY_OFF = 0, PT_RESIDENCY_CACHESTAT = 1, PT_RESIDENCY_MINCORE = 2 };
/* How a hint reaches the kernel. */
enum pt_delivery { PT_DELIVERY_NONE = 0, PT_DELIVERY_ADVICE = 1, PT_DELIVERY_BLOCKING = 2 };

/* Sums per iteration; "bytes" of pages are page-rounded, all others exact. */
enum pt_column {
    PT_READS = 0,
    PT_BYTES = 1,
    /* In-extent bytes the device had to bring: pages absent just before the read, or the whole
     * extents in a mode that bypasses the cache.  `first`: the expert was never read before through
     * this reader, except from an arena; `repeat`: it was. */
    PT_FIRST_BYTES = 2,
    PT_REPEAT_BYTES = 3,
    PT_RESIDENT_BYTES = 4,  /* pages of the extents that were there just before the read */
    PT_OVER_READ_BYTES = 5, /* PT_DIRECT: what it read around extents that are not aligned */
    PT_ARENA_READS = 6,     /* of PT_READS, those served by the arena */
    PT_ARENA_BYTES = 7,
    /* Hints, in the iteration of the record whose start submitted them. */
    PT_HINT_SUBMITTED = 8,
    PT_HINT_OVERWRITTEN = 9, /* replaced before the worker took them */
    PT_HINT_COMPLETED = 10,
    PT_HINT_FAILED = 11,
    PT_HINT_BYTES = 12,          /* pages of the extents that hints were given for */
    PT_HINT_RESIDENT_BEFORE = 13, /* of these, in the cache just before */
    PT_HINT_RESIDENT_AFTER = 14,  /* and just after */
    PT_HINT_BROUGHT_BYTES = 15,  /* absent before one call and there after it */
    PT_HINT_RACED_BYTES = 16,    /* the same while a read of the expert ran, which may count them */
    PT_HINT_LOST_BYTES = 17,     /* brought, and gone when the same expert was hinted again */
    /* In the iteration of the read: of what a hint had brought since the expert's last read. */
    PT_HINT_USED_BYTES = 18,
    PT_HINT_EVICTED_BYTES = 19,
    PT_COLUMNS = 20
};

struct pt_options {
    uint32_t threads;
    uint32_t mode;
    uint32_t barrier;
    uint32_t advice;
    uint32_t residency;
    uint32_t delivery;
    uint64_t hint_chunk_bytes; /* per call, rounded down to pages but at least one; 0: whole extents */
    /* Kept open for the files at the front of the pool; the others are opened for each read. */
    uint64_t max_descriptors;
    uint64_t max_hint_descriptors; /* the same for the worker that gives the hints */
};

/* Record r is experts[record_start[r] .. record_start[r + 1]); iteration i is records
 * [iteration_start[i] .. iteration_start[i + 1]).  Both arrays have one entry more than items. */
struct pt_plan {
    const uint32_t *experts;
    uint64_t num_reads;
    const uint64_t *record_start;
    const uint64_t *iteration_start;
    uint64_t num_records;
    uint64_t num_iterations;
};

/* When the first read of record r starts, a hint for experts[start[r] .. start[r + 1]) is
 * submitted, unless it is empty.  `start` has num_records + 1 entries.  A record without reads
 * submits nothing. */
struct pt_hints {
    const uint64_t *start;
    const uint32_t *experts;
    uint64_t num_experts;
};

/* One replay of a plan: the arrays belong to the caller. */
struct pt_pass {
    /* CLOCK_MONOTONIC when the last read of an iteration, and of all before it, had completed */
    uint64_t *iteration_end_ns;
    uint64_t *sums; /* PT_COLUMNS times num_iterations, column after column; see enum pt_column */
    /* PT_HISTOGRAM_BUCKETS (histogram.h); nanoseconds of one read from its first call to its last
     * byte, without open, residency and waits */
    uint64_t *latency_histogram;
    uint64_t start_ns; /* when the threads, already there, were let go */
    uint64_t user_ns; /* of the reading threads */
    uint64_t system_ns;
    uint64_t verified_reads;
    uint64_t content_hash; /* sum over all reads of XXH64(bytes read, seed: number of the read) */
    /* The worker that gives hints. */
    uint64_t hint_busy_ns; /* from taking hints to their end */
    uint64_t hint_user_ns;
    uint64_t hint_system_ns;
    uint64_t hint_unused_bytes; /* brought, and not read again up to the end of the pass */
    struct pt_fault hint_fault; /* of the first hint that failed */
    int32_t hint_result;        /* 0 or its -errno */
    uint32_t hash_content; /* in: 1 fills content_hash */
    uint64_t content_seed; /* in: see content.h */
    /* in: of every expert pt_digest, seed 0, to compare with; NULL: content_seed says the content */
    const uint64_t *expert_digest;
    uint32_t verify_every; /* in: compare the content of every n-th read; 0 = none */
    uint32_t pad;
};

/* Iterations without reads count from the start. */
struct pt_progress {
    uint64_t reads;
    uint64_t bytes;
    uint64_t iterations;
};

struct pt_arena;
struct pt_reader;

/* The descriptors that would keep every file open: one each, or one per thread for files that hold
 * several extents.  Each thread needs one more where that is too many. */
int pt_reader_descriptors(const struct pt_pool *pool, const struct pt_options *options,
                          uint64_t *descriptors, struct pt_fault *fault);
/* The pool with all it points to, and the arena (or NULL), must outlive the reader.  -EINVAL: an
 * array of the pool is not what its header says; -ENODATA: a file is shorter than its extents. */
int pt_reader_open(const struct pt_pool *pool, const struct pt_options *options,
                   const struct pt_arena *arena, struct pt_reader **reader,
                   struct pt_fault *fault);
/* Blocks until the plan is read, a read fails or pt_reader_cancel (-ECANCELED).  A hint that fails
 * ends nothing.  `hints` may be NULL.  -EINVAL: an array of the plan or the hints is wrong;
 * -ENODATA: a file ends within an extent; -EILSEQ: wrong content; -EBUSY: one replay at a time. */
int pt_reader_replay(struct pt_reader *reader, const struct pt_plan *plan,
                     const struct pt_hints *hints, struct pt_pass *pass, struct pt_fault *fault);
/* Files that stay open for the reading threads. */
uint32_t pt_reader_kept_files(const struct pt_reader *reader);
/* The next two may be called from any thread while a replay runs. */
void pt_reader_progress(const struct pt_reader *reader, struct pt_progress *progress);
/* For good: ends the replay that runs, and any later one. */
void pt_reader_cancel(struct pt_reader *reader);
void pt_reader_close(struct pt_reader *reader);

#endif
