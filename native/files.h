/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a pool: kept open, opened for each read, or mapped; and one copy out of them. */
#ifndef PAGETIER_FILES_H
#define PAGETIER_FILES_H

#include <stdint.h>

#include "reader.h"
#include "source.h"

struct pt_mapping {
    unsigned char *start; /* NULL: nothing is ever read from this file */
    uint64_t length;
};

struct pt_direct;

struct pt_files {
    const struct pt_pool *pool;
    const struct pt_source *source;
    uint32_t advice;
    uint32_t residency;
    uint32_t page_bytes;
    uint32_t threads;
    uint32_t destination_bytes; /* every expert is read to a multiple of this */
    uint32_t num_kept; /* files */
    uint64_t *needed;  /* bytes from the start of each file that its extents reach */
    /* File f is open as descriptors[first[f] .. first[f + 1]): as none, and is opened for each read;
     * as one; or as one per thread.  The last is for files that hold several extents: the kernel
     * keeps the state of its readahead per open file, and readers in different places of one would
     * overwrite each other's.  Mapped files are open, once, where cachestat is asked of them. */
    uint64_t *first;
    int *descriptors;
    struct pt_mapping *mapped;
    struct pt_direct *direct; /* of PT_DIRECT */
};

/* How many descriptors it takes to keep all files open. 0 or -errno. */
int pt_files_descriptors(const struct pt_pool *pool, const struct pt_options *options,
                         uint64_t *descriptors);
/* Opens every file at least once: a missing, short or foreign file is found here, and one that
 * cannot be read in the mode asked for.  Of the options: threads, mode, advice, residency and
 * max_descriptors. */
int pt_files_open(struct pt_files *files, const struct pt_pool *pool,
                  const struct pt_options *options, uint32_t destination_bytes,
                  struct pt_fault *fault);
/* For the time of a replay: faults of mapped files become errors, in the calling process. */
int pt_files_begin(const struct pt_files *files, struct pt_fault *fault);
int pt_files_end(const struct pt_files *files, struct pt_fault *fault);
/* A descriptor of a file, for one thread, or -errno; and back.  Advised, and open for reading. */
int pt_files_take(const struct pt_files *files, uint32_t thread, uint32_t file,
                  struct pt_fault *fault);
void pt_files_give(const struct pt_files *files, uint32_t thread, uint32_t file, int fd);
/* Copies one extent for a thread.  -ENODATA where the file ends before it. */
int pt_files_read(const struct pt_files *files, uint32_t thread, const struct pt_extent *extent,
                  void *into, struct pt_cost *cost, struct pt_fault *fault);
/* Bytes, in whole pages, of an extent that are in the page cache, or -errno. Residency must be on. */
int64_t pt_files_resident(const struct pt_files *files, uint32_t thread,
                          const struct pt_extent *extent, struct pt_fault *fault);
void pt_files_close(struct pt_files *files);

#endif
