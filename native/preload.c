/* SPDX-License-Identifier: Apache-2.0 */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "files.h"
#include "residency.h"

/* Read at a time: how long a cancel may take, and the memory that an unaligned piece needs. */
#define PIECE_BYTES (UINT64_C(8) << 20)

/* The experts to load, cut into pieces: a pool whose "experts" are these. */
struct pieces {
    struct pt_pool pool;
    struct pt_extent *extents;
    uint64_t *expert_start;
    uint32_t *expert; /* that each piece is of */
    uint64_t *into;   /* where in the region it goes */
    uint64_t count;
};

/* Cut where the file offset is a multiple, so that cuts lie on blocks and on pages. */
static uint64_t piece_length(const struct pt_extent *extent, uint64_t done)
{
    uint64_t at = extent->offset + done;
    uint64_t to_cut = PIECE_BYTES - at % PIECE_BYTES;
    uint64_t left = extent->length - done;

    return left < to_cut ? left : to_cut;
}

static void add_extent(struct pieces *pieces, const struct pt_extent *extent, uint32_t expert,
                       uint64_t into)
{
    for (uint64_t done = 0; done < extent->length;) {
        uint64_t length = piece_length(extent, done);
        uint64_t i = pieces->count++;

        if (pieces->extents) { /* NULL: counted only */
            pieces->extents[i] = (struct pt_extent){extent->file, extent->offset + done, length};
            pieces->expert_start[i + 1] = i + 1;
            pieces->expert[i] = expert;
            pieces->into[i] = into + done;
        }
        done += length;
    }
}

static void add_all(struct pieces *pieces, const struct pt_loading *loading)
{
    const struct pt_pool *pool = loading->pool;

    pieces->count = 0;
    for (uint64_t i = 0; i < loading->num_experts; i++) {
        uint32_t expert = loading->experts[i];
        uint64_t into = loading->start[expert];

        for (uint64_t e = pool->expert_start[expert]; e < pool->expert_start[expert + 1]; e++) {
            add_extent(pieces, &pool->extents[e], expert, into);
            into += pool->extents[e].length;
        }
    }
}

static int cut(struct pieces *pieces, const struct pt_loading *loading)
{
    add_all(pieces, loading);
    size_t room = pieces->count + 1;
    if (room > UINT32_MAX)
        return -EOVERFLOW;
    pieces->extents = calloc(room, sizeof *pieces->extents);
    pieces->expert_start = calloc(room, sizeof *pieces->expert_start);
    pieces->expert = calloc(room, sizeof *pieces->expert);
    pieces->into = calloc(room, sizeof *pieces->into);
    if (!pieces->extents || !pieces->expert_start || !pieces->expert || !pieces->into)
        return -ENOMEM;
    add_all(pieces, loading);
    pieces->pool = (struct pt_pool){
        .paths = loading->pool->paths,
        .identities = loading->pool->identities,
        .num_files = loading->pool->num_files,
        .extents = pieces->extents,
        .num_extents = pieces->count,
        .expert_start = pieces->expert_start,
        .num_experts = (uint32_t)pieces->count,
    };
    return 0;
}

static void free_pieces(struct pieces *pieces)
{
    free(pieces->extents);
    free(pieces->expert_start);
    free(pieces->expert);
    free(pieces->into);
}

/* ---- Opening ---- */

static bool is_call(const struct pt_fault *fault, const char *call)
{
    return strcmp(fault->call, call) == 0;
}

/* With the best method that tells residency; with none, *unknown says why. */
static int open_in_mode(struct pt_files *files, const struct pt_pool *pool, uint32_t mode,
                        int32_t *unknown, struct pt_fault *fault)
{
    struct pt_options options = {
        .threads = 1,
        .mode = mode,
        .advice = mode == PT_DIRECT ? PT_ADVICE_DEFAULT : PT_ADVICE_RANDOM,
        .residency = PT_RESIDENCY_CACHESTAT,
    };

    *unknown = 0;
    for (;;) {
        int result = pt_files_open(files, pool, &options, PT_ARENA_SLOT_BYTES, fault);

        if (result == 0)
            return 0;
        pt_files_close(files);
        if (!is_call(fault, "cachestat") && !is_call(fault, "mincore"))
            return result;
        if (result == -ENOSYS && is_call(fault, "cachestat")) {
            options.residency = PT_RESIDENCY_MINCORE;
        } else {
            options.residency = PT_RESIDENCY_OFF;
            *unknown = result;
        }
    }
}

static bool gives_no_direct(int result, const struct pt_fault *fault)
{
    return (is_call(fault, "open") && result == -EINVAL) ||
           (is_call(fault, "statx") && result == -EOPNOTSUPP);
}

static int open_files(struct pt_files *files, const struct pt_pool *pool, int32_t *unknown,
                      struct pt_fault *fault)
{
    int result = open_in_mode(files, pool, PT_DIRECT, unknown, fault);

    if (result == 0 || !gives_no_direct(result, fault))
        return result;
    result = open_in_mode(files, pool, PT_PREAD, unknown, fault);
    if (result < 0 || *unknown == 0)
        return result;
    /* Which pages were there before, and must stay, would be a guess. */
    pt_files_close(files);
    return pt_fail(fault, *unknown, "mincore", PT_NONE, 0);
}

/* ---- Reading ---- */

/* Drops the pages of a piece that were absent before, and only those. */
static int drop_absent(int fd, const struct pt_extent *piece, const unsigned char *present,
                       struct pt_fault *fault)
{
    uint64_t page = pt_page_bytes();
    uint64_t first = piece->offset / page;
    uint64_t count = pt_pages_touched(piece->offset, piece->length);

    for (uint64_t i = 0; i < count;) {
        uint64_t run = 0;

        while (i + run < count && !(present[i + run] & 1))
            run++;
        int result = run == 0 ? 0
                              : -posix_fadvise(fd, (off_t)((first + i) * page), (off_t)(run * page),
                                               POSIX_FADV_DONTNEED);
        if (result < 0)
            return pt_fail(fault, result, "posix_fadvise", piece->file, (first + i) * page);
        i += run + 1;
    }
    return 0;
}

static int read_and_drop(const struct pt_files *files, int fd, const struct pt_extent *piece,
                         void *into, struct pt_cost *cost, struct pt_fault *fault)
{
    unsigned char *present = malloc(pt_pages_touched(piece->offset, piece->length));

    if (!present)
        return pt_fail(fault, -ENOMEM, "malloc", piece->file, piece->offset);
    int result = pt_mincore_list(fd, piece->offset, piece->length, present);
    if (result < 0)
        pt_fail(fault, result, "mincore", piece->file, piece->offset);
    if (result == 0)
        result = pt_files_read(files, 0, piece, into, cost, fault);
    if (result == 0)
        result = drop_absent(fd, piece, present, fault);
    free(present);
    return result;
}

static int read_buffered(const struct pt_files *files, const struct pt_extent *piece, void *into,
                         struct pt_cost *cost, struct pt_fault *fault)
{
    int fd = pt_files_take(files, 0, piece->file, fault);

    if (fd < 0)
        return fd;
    int result = read_and_drop(files, fd, piece, into, cost, fault);
    pt_files_give(files, 0, piece->file, fd);
    return result;
}

static int64_t resident(const struct pt_files *files, const struct pt_extent *piece,
                        struct pt_fault *fault)
{
    if (files->residency == PT_RESIDENCY_OFF)
        return 0;
    return pt_files_resident(files, 0, piece, fault);
}

static int load_piece(const struct pt_files *files, const struct pt_extent *piece, void *into,
                      struct pt_preload *preload, struct pt_fault *fault)
{
    struct pt_cost cost = {0};
    int64_t before = resident(files, piece, fault);

    if (before < 0)
        return (int)before;
    int result = files->source->bypasses ? pt_files_read(files, 0, piece, into, &cost, fault)
                                         : read_buffered(files, piece, into, &cost, fault);
    int64_t after = result < 0 ? result : resident(files, piece, fault);
    if (after < 0)
        return (int)after;
    preload->admitted_bytes += after - before;
    preload->bytes += piece->length;
    preload->direct_bytes += files->source->bypasses ? piece->length : 0;
    preload->over_read_bytes += cost.over_read_bytes;
    return 0;
}

static int load_all(const struct pt_loading *loading, const struct pieces *pieces,
                    const struct pt_files *files, struct pt_preload *preload,
                    struct pt_fault *fault)
{
    for (uint64_t i = 0; i < pieces->count; i++) {
        if (atomic_load(loading->cancelled))
            return pt_fail(fault, -ECANCELED, "arena", PT_NONE, preload->bytes);
        fault->expert = pieces->expert[i];
        int result = load_piece(files, &pieces->extents[i], loading->region + pieces->into[i],
                                preload, fault);
        if (result < 0)
            return result;
        atomic_store(loading->progress, preload->bytes);
    }
    return 0;
}

int pt_preload(const struct pt_loading *loading, struct pt_preload *preload,
               struct pt_fault *fault)
{
    uint64_t start_ns = pt_now_ns();
    struct pieces pieces = {0};
    struct pt_files files;

    *fault = (struct pt_fault){.file = PT_NONE, .expert = PT_NONE};
    *preload = (struct pt_preload){0};
    int result = cut(&pieces, loading);
    if (result < 0)
        pt_fail(fault, result, "calloc", PT_NONE, 0);
    if (result == 0)
        result = open_files(&files, &pieces.pool, &preload->residency, fault);
    if (result == 0) {
        result = load_all(loading, &pieces, &files, preload, fault);
        pt_files_close(&files);
    }
    free_pieces(&pieces);
    preload->ns = pt_now_ns() - start_ns;
    return result;
}
