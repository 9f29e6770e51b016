/* SPDX-License-Identifier: Apache-2.0 */
/* One way of bringing the bytes of an extent into a thread's buffer: a file source_*.c each. */
#ifndef PAGETIER_SOURCE_H
#define PAGETIER_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool.h"

struct pt_files;

/* What reading the extents of one expert cost so far. */
struct pt_cost {
    uint64_t latency_ns;      /* of the copies alone */
    uint64_t absent_bytes;    /* in-extent bytes that the device has to bring */
    uint64_t resident_bytes;  /* whole pages that were in the page cache just before */
    uint64_t over_read_bytes; /* read around an extent that is not aligned */
};

struct pt_access {
    const struct pt_files *files;
    const struct pt_extent *extent; /* of at least one byte */
    unsigned char *into;
    uint32_t thread;
    int fd; /* or none, where files are mapped */
};

struct pt_source {
    int open_flags; /* beside those that every file is opened with */
    bool maps;      /* reads out of a mapping of each file */
    bool bypasses;  /* the page cache: the device brings every byte, each time */
    /* Whether this file can be read so, asked once, without reading. NULL: always. */
    int (*prepare)(struct pt_files *files, uint32_t file, int fd, struct pt_fault *fault);
    /* Memory of the source's own, when all files are known; and its end. NULL: none. */
    int (*begin)(struct pt_files *files, struct pt_fault *fault);
    void (*end)(struct pt_files *files);
    /* -ENODATA where the file ends within the extent. */
    int (*read)(const struct pt_access *access, struct pt_cost *cost, struct pt_fault *fault);
};

/* Of an enum pt_mode. */
const struct pt_source *pt_source_of(uint32_t mode);

extern const struct pt_source pt_source_pread;
extern const struct pt_source pt_source_mmap;
extern const struct pt_source pt_source_populate;
extern const struct pt_source pt_source_direct;
extern const struct pt_source pt_source_dontcache;
extern const struct pt_source pt_source_drop_behind;

/* Reads that several sources are made of. */
int pt_read_whole(const struct pt_access *access, struct pt_cost *cost, struct pt_fault *fault);
int pt_copy_mapped(const struct pt_access *access, struct pt_cost *cost, struct pt_fault *fault);
/* What a fault of a mapping at `offset` of its file means: -ENODATA, its end, or -EIO. */
int pt_mapping_fault(const struct pt_files *files, uint32_t file, uint64_t offset);

#endif
