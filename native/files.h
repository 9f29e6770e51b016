/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a pool: kept open, opened for each read, or mapped; and one copy out of them. */
#ifndef PAGETIER_FILES_H
#define PAGETIER_FILES_H

#include <stdint.h>

#include "reader.h"

struct pt_mapping {
    unsigned char *start; /* NULL: nothing is ever read from this file */
    uint64_t length;
};

struct pt_files {
    const struct pt_pool *pool;
    uint32_t mode;
    uint32_t advice;
    uint32_t residency;
    uint32_t page_bytes;
    uint32_t threads;
    uint32_t num_kept; /* files */
    uint64_t *needed;  /* bytes from the start of each file that its extents reach */
    /* PT_PREAD: file f is open as descriptors[first[f] .. first[f + 1]): as none, and is opened for
     * each read; as one; or as one per thread.  The last is for files that hold several extents:
     * the kernel keeps the state of its readahead per open file, and readers in different places
     * of one would overwrite each other's. */
    uint64_t *first;
    int *descriptors;
    struct pt_mapping *mapped; /* PT_MMAP */
};

/* What reading the extents of one expert cost so far. */
struct pt_cost {
    uint64_t latency_ns; /* of the copies alone */
    uint64_t absent_bytes; /* whole pages that were not resident just before */
};

/* How many descriptors it takes to keep all files open. 0 or -errno. */
int pt_files_descriptors(const struct pt_pool *pool, uint32_t threads, uint64_t *descriptors);
/* Opens every file at least once: a missing, short or foreign file is found here. */
int pt_files_open(struct pt_files *files, const struct pt_pool *pool,
                  const struct pt_options *options, struct pt_fault *fault);
/* For the time of a replay: faults of mapped files become errors, in the calling process. */
int pt_files_begin(const struct pt_files *files, struct pt_fault *fault);
int pt_files_end(const struct pt_files *files, struct pt_fault *fault);
/* Copies one extent for a thread.  -ENODATA where the file ends before it. */
int pt_files_read(const struct pt_files *files, uint32_t thread, const struct pt_extent *extent,
                  void *into, struct pt_cost *cost, struct pt_fault *fault);
void pt_files_close(struct pt_files *files);

uint64_t pt_now_ns(void);
/* Fills in where a failure happened, and returns it. */
int pt_fail(struct pt_fault *fault, int result, const char *call, uint32_t file, uint64_t offset);

#endif
