/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a plan of expert reads with a pool of threads.  Error currency: 0 or -errno; where a
 * file is to blame, struct pt_fault says which one, where, and in which call. */
#ifndef PAGETIER_READER_H
#define PAGETIER_READER_H

#include <stdint.h>

enum pt_mode { PT_PREAD = 0, PT_MMAP = 1 };
enum pt_barrier { PT_BARRIER_RECORD = 0, PT_BARRIER_ITERATION = 1, PT_BARRIER_NONE = 2 };
enum pt_advice { PT_ADVICE_DEFAULT = 0, PT_ADVICE_RANDOM = 1, PT_ADVICE_SEQUENTIAL = 2 };
/* How the residency of an extent is asked for just before its read. */
enum pt_residency { PT_RESIDENCY_OFF = 0, PT_RESIDENCY_CACHESTAT = 1, PT_RESIDENCY_MINCORE = 2 };

/* In pt_fault.file and pt_fault.expert: none is to blame. */
#define PT_NONE 4294967295

struct pt_extent {
    uint32_t file;
    uint64_t offset;
    uint64_t length;
};

/* Expert e is read from extents[expert_start[e] .. expert_start[e + 1]). */
struct pt_pool {
    const char *const *paths;
    uint32_t num_files;
    const struct pt_extent *extents;
    uint64_t num_extents;
    const uint64_t *expert_start;
    uint32_t num_experts;
};

struct pt_options {
    uint32_t threads;
    uint32_t mode;
    uint32_t barrier;
    uint32_t advice;
    uint32_t residency;
    /* Kept open for the files at the front of the pool; the others are opened for each read. */
    uint64_t max_descriptors;
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

/* One replay of a plan: the arrays belong to the caller, one entry per iteration. */
struct pt_pass {
    /* CLOCK_MONOTONIC when the last read of this iteration, and of all before it, had completed */
    uint64_t *iteration_end_ns;
    uint64_t *iteration_bytes;
    uint64_t *iteration_reads;
    /* In-extent bytes the device had to bring: page-rounded, absent just before the read.  `first`:
     * the expert was never read before through this reader; `repeat`: it was.  Zero when residency
     * is off. */
    uint64_t *iteration_first_bytes;
    uint64_t *iteration_repeat_bytes;
    /* PT_HISTOGRAM_BUCKETS (histogram.h); nanoseconds of the copies of one read, without open,
     * residency and waits */
    uint64_t *latency_histogram;
    uint64_t start_ns; /* when the threads, already there, were let go */
    uint64_t user_ns; /* of the reading threads */
    uint64_t system_ns;
    uint64_t verified_reads;
    uint32_t verify_every; /* in: compare the content of every n-th read; 0 = none */
    uint32_t pad;
    uint64_t content_seed; /* in: see content.h */
};

/* Iterations without reads count from the start. */
struct pt_progress {
    uint64_t reads;
    uint64_t bytes;
    uint64_t iterations;
};

struct pt_fault {
    char call[24]; /* "open", "pread", "memcpy", "verify", ...; for -EINVAL the array that is wrong */
    uint32_t file;   /* or PT_NONE */
    uint32_t expert; /* or PT_NONE */
    uint64_t offset; /* byte in the file; for -EINVAL the index in the array */
};

struct pt_reader;

/* The descriptors that would keep every file open: one each, or one per thread for files that hold
 * several extents.  Each thread needs one more where that is too many. */
int pt_reader_descriptors(const struct pt_pool *pool, uint32_t threads, uint64_t *descriptors,
                          struct pt_fault *fault);
/* The pool and all it points to must outlive the reader.  -EINVAL: an array of the pool is not what
 * this header says; -ENODATA: a file is shorter than its extents. */
int pt_reader_open(const struct pt_pool *pool, const struct pt_options *options,
                   struct pt_reader **reader, struct pt_fault *fault);
/* Blocks until the plan is read, a read fails or pt_reader_cancel (-ECANCELED).  -EINVAL: an array
 * of the plan is wrong; -ENODATA: a file ends within an extent; -EILSEQ: wrong content; -EBUSY:
 * one replay at a time. */
int pt_reader_replay(struct pt_reader *reader, const struct pt_plan *plan, struct pt_pass *pass,
                     struct pt_fault *fault);
/* Files that stay open; none when they are mapped. */
uint32_t pt_reader_kept_files(const struct pt_reader *reader);
/* The next two may be called from any thread while a replay runs. */
void pt_reader_progress(const struct pt_reader *reader, struct pt_progress *progress);
/* For good: ends the replay that runs, and any later one. */
void pt_reader_cancel(struct pt_reader *reader);
void pt_reader_close(struct pt_reader *reader);

#endif
