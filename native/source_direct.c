/* SPDX-License-Identifier: Apache-2.0 */
/* Past the page cache.  An extent that lies on the blocks of the device, and whose destination does
 * too, is written by the device into the thread's buffer.  Any other is read with the blocks that it
 * touches into a second buffer and copied from there. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alignment.h"
#include "files.h"
#include "source.h"

struct pt_direct {
    uint64_t bounce_bytes; /* 0: every extent is aligned */
    unsigned char *bounce; /* of all threads, one after the other */
    struct pt_alignment alignment[]; /* of each file */
};

/* The blocks that an extent touches. */
struct span {
    uint64_t start;
    uint64_t length;
};

static struct span blocks_of(const struct pt_extent *extent, uint32_t block_bytes)
{
    uint64_t start = extent->offset / block_bytes * block_bytes;
    uint64_t end = extent->offset + extent->length;

    return (struct span){start, (end + block_bytes - 1) / block_bytes * block_bytes - start};
}

static bool is_aligned(const struct pt_extent *extent, uint64_t into,
                       const struct pt_alignment *alignment)
{
    return extent->offset % alignment->file_bytes == 0 &&
           extent->length % alignment->file_bytes == 0 && into % alignment->memory_bytes == 0;
}

static int prepare(struct pt_files *files, uint32_t file, int fd, struct pt_fault *fault)
{
    if (!files->direct)
        files->direct = calloc(1, sizeof *files->direct +
                                      files->pool->num_files * sizeof(struct pt_alignment));
    if (!files->direct)
        return pt_fail(fault, -ENOMEM, "calloc", file, 0);
    int result = pt_alignment_of(fd, &files->direct->alignment[file]);
    return result < 0 ? pt_fail(fault, result, "statx", file, 0) : 0;
}

static uint64_t bounce_needed(const struct pt_files *files, const struct pt_extent *extent,
                              uint64_t into)
{
    const struct pt_alignment *alignment = &files->direct->alignment[extent->file];

    if (extent->length == 0 || is_aligned(extent, into, alignment))
        return 0;
    return blocks_of(extent, alignment->file_bytes).length;
}

static uint64_t largest_bounce(const struct pt_files *files)
{
    const struct pt_pool *pool = files->pool;
    uint64_t largest = 0;

    for (uint32_t e = 0; e < pool->num_experts; e++) {
        uint64_t into = files->destination_bytes;

        for (uint64_t i = pool->expert_start[e]; i < pool->expert_start[e + 1]; i++) {
            uint64_t needed = bounce_needed(files, &pool->extents[i], into);

            if (largest < needed)
                largest = needed;
            into += pool->extents[i].length;
        }
    }
    return (largest + files->page_bytes - 1) / files->page_bytes * files->page_bytes;
}

static int begin(struct pt_files *files, struct pt_fault *fault)
{
    if (!files->direct) /* a pool without files */
        return 0;
    uint64_t bytes = largest_bounce(files);
    if (bytes == 0)
        return 0;
    void *bounce = mmap(NULL, bytes * files->threads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (bounce == MAP_FAILED)
        return pt_fail(fault, -errno, "mmap", PT_NONE, 0);
    files->direct->bounce = bounce;
    files->direct->bounce_bytes = bytes;
    return 0;
}

static void end(struct pt_files *files)
{
    if (files->direct && files->direct->bounce)
        munmap(files->direct->bounce, files->direct->bounce_bytes * files->threads);
    free(files->direct);
}

/* Reads blocks, until the first `needed` bytes are there.  A read that stops within a block stops at
 * the end of the file, if it does so twice: go on from the start of that block. */
static int read_blocks(const struct pt_access *access, const struct span *blocks, uint64_t needed,
                       uint32_t block_bytes, unsigned char *into, struct pt_fault *fault)
{
    uint32_t file = access->extent->file;
    uint64_t from = 0;

    while (from < blocks->length) {
        ssize_t n = pread(access->fd, into + from, blocks->length - from,
                          (off_t)(blocks->start + from));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pt_fail(fault, -errno, "pread", file, blocks->start + from);
        if (from + (uint64_t)n >= needed)
            return 0;
        uint64_t whole = (uint64_t)n / block_bytes * block_bytes;
        if (whole == 0)
            return pt_fail(fault, -ENODATA, "pread", file, blocks->start + from + (uint64_t)n);
        from += whole;
    }
    return 0;
}

static int read_direct(const struct pt_access *access, struct pt_cost *cost,
                       struct pt_fault *fault)
{
    const struct pt_direct *direct = access->files->direct;
    const struct pt_extent *extent = access->extent;
    const struct pt_alignment *alignment = &direct->alignment[extent->file];
    struct span blocks = blocks_of(extent, alignment->file_bytes);
    uint64_t before = extent->offset - blocks.start;
    unsigned char *bounce = direct->bounce + access->thread * direct->bounce_bytes;
    bool aligned = is_aligned(extent, (uintptr_t)access->into, alignment);
    unsigned char *into = aligned ? access->into : bounce;
    int result = read_blocks(access, &blocks, before + extent->length, alignment->file_bytes, into,
                             fault);

    if (result < 0)
        return result;
    if (!aligned)
        memcpy(access->into, bounce + before, extent->length);
    cost->over_read_bytes += blocks.length - extent->length;
    return 0;
}

const struct pt_source pt_source_direct = {
    .open_flags = O_DIRECT,
    .bypasses = true,
    .prepare = prepare,
    .begin = begin,
    .end = end,
    .read = read_direct,
};
