/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "residency.h"
#include "sigbus.h"

static int advise_descriptor(const struct pt_files *files, int fd)
{
    switch (files->advice) {
    case PT_ADVICE_RANDOM:
        return -posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    case PT_ADVICE_SEQUENTIAL:
        return -posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    default:
        return 0;
    }
}

static int advise_mapping(const struct pt_files *files, const struct pt_mapping *mapping)
{
    int result = 0;

    if (files->advice == PT_ADVICE_RANDOM)
        result = madvise(mapping->start, mapping->length, MADV_RANDOM);
    if (files->advice == PT_ADVICE_SEQUENTIAL)
        result = madvise(mapping->start, mapping->length, MADV_SEQUENTIAL);
    return result < 0 ? -errno : 0;
}

/* What cannot be opened with O_DIRECT may be no file at all. */
static int open_failure(const struct pt_files *files, uint32_t file, int code)
{
    struct stat status;

    if (code == EINVAL && lstat(files->pool->paths[file], &status) == 0 &&
        !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
        return -EMEDIUMTYPE;
    return -code;
}

static int check_identity(const struct pt_files *files, uint32_t file, int fd,
                          struct pt_fault *fault)
{
    const struct pt_identity *wanted = files->pool->identities;
    struct stat status;

    if (wanted == NULL)
        return 0;
    if (fstat(fd, &status) < 0)
        return pt_fail(fault, -errno, "fstat", file, 0);
    if (status.st_dev != wanted[file].device || status.st_ino != wanted[file].inode)
        return pt_fail(fault, -ESTALE, "open", file, 0);
    return 0;
}

static int set_up_descriptor(const struct pt_files *files, uint32_t file, int fd,
                             struct pt_fault *fault)
{
    int result = check_identity(files, file, fd, fault);

    if (result < 0 || files->source->maps)
        return result;
    result = advise_descriptor(files, fd);
    return result < 0 ? pt_fail(fault, result, "posix_fadvise", file, 0) : 0;
}

static int open_file(const struct pt_files *files, uint32_t file, struct pt_fault *fault)
{
    /* O_NONBLOCK: a FIFO in the place of a pool file must not hang the open. */
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | files->source->open_flags;
    int fd = open(files->pool->paths[file], flags);

    if (fd < 0)
        return pt_fail(fault, open_failure(files, file, errno), "open", file, 0);
    int result = set_up_descriptor(files, file, fd, fault);
    if (result < 0) {
        close(fd);
        return result;
    }
    return fd;
}

static int check_size(const struct pt_files *files, uint32_t file, const struct stat *status,
                      struct pt_fault *fault)
{
    if (!S_ISREG(status->st_mode))
        return pt_fail(fault, -EMEDIUMTYPE, "fstat", file, 0);
    if ((uint64_t)status->st_size < files->needed[file])
        return pt_fail(fault, -ENODATA, "fstat", file, (uint64_t)status->st_size);
    return 0;
}

/* Whether the kernel will tell this file's residency: better known before the first pass. */
static int check_residency(const struct pt_files *files, uint32_t file, int fd,
                           struct pt_fault *fault)
{
    if (files->residency == PT_RESIDENCY_CACHESTAT) {
        int64_t pages = pt_cachestat_pages(fd, 0, 1);

        return pages < 0 ? pt_fail(fault, (int)pages, "cachestat", file, 0) : 0;
    }
    if (files->residency == PT_RESIDENCY_MINCORE) {
        int trusted = pt_mincore_trusted(fd);

        if (trusted <= 0)
            return pt_fail(fault, trusted < 0 ? trusted : -EPERM, "mincore", file, 0);
    }
    return 0;
}

static int check_file(const struct pt_files *files, uint32_t file, int fd, struct pt_fault *fault)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return pt_fail(fault, -errno, "fstat", file, 0);
    int result = check_size(files, file, &status, fault);
    return result < 0 ? result : check_residency(files, file, fd, fault);
}

static int map_file(struct pt_files *files, uint32_t file, int fd, struct pt_fault *fault)
{
    struct pt_mapping *mapping = &files->mapped[file];

    mapping->length = files->needed[file];
    if (mapping->length == 0)
        return 0;
    void *start = mmap(NULL, mapping->length, PROT_READ, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED)
        return pt_fail(fault, -errno, "mmap", file, 0);
    mapping->start = start;
    int result = advise_mapping(files, mapping);
    return result < 0 ? pt_fail(fault, result, "madvise", file, 0) : 0;
}

/* The descriptors of one file; the first one is open already. */
static int keep_file(struct pt_files *files, uint32_t file, int fd, struct pt_fault *fault)
{
    files->descriptors[files->first[file]] = fd;
    for (uint64_t i = files->first[file] + 1; i < files->first[file + 1]; i++) {
        files->descriptors[i] = open_file(files, file, fault);
        if (files->descriptors[i] < 0)
            return files->descriptors[i];
    }
    files->num_kept++;
    return 0;
}

/* Everything that is asked of a file, with its first descriptor. */
static int examine_file(struct pt_files *files, uint32_t file, int fd, struct pt_fault *fault)
{
    int result = check_file(files, file, fd, fault);

    if (result == 0 && files->source->maps)
        result = map_file(files, file, fd, fault);
    if (result == 0 && files->source->prepare)
        result = files->source->prepare(files, file, fd, fault);
    return result;
}

static int prepare_file(struct pt_files *files, uint32_t file, struct pt_fault *fault)
{
    int fd = open_file(files, file, fault);

    if (fd < 0)
        return fd;
    int result = examine_file(files, file, fd, fault);
    if (result == 0 && files->first[file] < files->first[file + 1])
        return keep_file(files, file, fd, fault);
    close(fd);
    return result;
}

static void find_needed(struct pt_files *files)
{
    for (uint64_t i = 0; i < files->pool->num_extents; i++) {
        const struct pt_extent *extent = &files->pool->extents[i];
        uint64_t end = extent->length ? extent->offset + extent->length : 0;

        if (files->needed[extent->file] < end)
            files->needed[extent->file] = end;
    }
}

/* Whether anything is ever asked of a descriptor. */
static bool uses_descriptors(const struct pt_options *options)
{
    return !pt_source_of(options->mode)->maps || options->residency == PT_RESIDENCY_CACHESTAT;
}

/* Fills `first` for an unlimited number of descriptors. */
static void count_descriptors(const struct pt_pool *pool, const struct pt_options *options,
                              uint64_t *first)
{
    uint32_t most = pt_source_of(options->mode)->maps ? 1 : options->threads;

    for (uint64_t i = 0; i < pool->num_extents; i++)
        first[pool->extents[i].file + 1]++;
    for (uint32_t file = 0; file < pool->num_files; file++)
        first[file + 1] = first[file] + (first[file + 1] > 1 ? most : 1);
}

int pt_files_descriptors(const struct pt_pool *pool, const struct pt_options *options,
                         uint64_t *descriptors)
{
    uint64_t *first = calloc((size_t)pool->num_files + 1, sizeof *first);

    if (!first)
        return -ENOMEM;
    if (uses_descriptors(options))
        count_descriptors(pool, options, first);
    *descriptors = first[pool->num_files];
    free(first);
    return 0;
}

/* The first files stay open, as many as the limit has room for. */
static void limit_descriptors(struct pt_files *files, uint64_t max_descriptors)
{
    uint32_t file = files->pool->num_files;

    while (files->first[file] > max_descriptors)
        file--;
    for (uint64_t last = files->first[file]; file < files->pool->num_files; file++)
        files->first[file + 1] = last;
}

static int allocate_descriptors(struct pt_files *files, const struct pt_options *options)
{
    uint32_t num_files = files->pool->num_files;

    files->first = calloc((size_t)num_files + 1, sizeof *files->first);
    if (!files->first)
        return -ENOMEM;
    if (uses_descriptors(options)) {
        count_descriptors(files->pool, options, files->first);
        limit_descriptors(files, options->max_descriptors);
    }
    uint64_t count = files->first[num_files];
    files->descriptors = malloc((count + 1) * sizeof *files->descriptors);
    for (uint64_t i = 0; files->descriptors && i < count; i++)
        files->descriptors[i] = -1;
    return files->descriptors ? 0 : -ENOMEM;
}

static int allocate(struct pt_files *files, const struct pt_options *options)
{
    size_t at_least_one = (size_t)files->pool->num_files + 1; /* calloc(0) may be NULL */

    files->needed = calloc(at_least_one, sizeof *files->needed);
    files->mapped = calloc(at_least_one, sizeof *files->mapped);
    if (!files->needed || !files->mapped)
        return -ENOMEM;
    return allocate_descriptors(files, options);
}

int pt_files_open(struct pt_files *files, const struct pt_pool *pool,
                  const struct pt_options *options, uint32_t destination_bytes,
                  struct pt_fault *fault)
{
    *files = (struct pt_files){
        .pool = pool,
        .source = pt_source_of(options->mode),
        .advice = options->advice,
        .residency = options->residency,
        .page_bytes = (uint32_t)pt_page_bytes(),
        .threads = options->threads,
        .destination_bytes = destination_bytes,
    };
    int result = allocate(files, options);
    if (result < 0)
        return pt_fail(fault, result, "calloc", PT_NONE, 0);
    find_needed(files);
    for (uint32_t file = 0; file < pool->num_files && result == 0; file++)
        result = prepare_file(files, file, fault);
    if (result == 0 && files->source->begin)
        result = files->source->begin(files, fault);
    return result;
}

int pt_files_begin(const struct pt_files *files, struct pt_fault *fault)
{
    if (!files->source->maps)
        return 0;
    int result = pt_sigbus_begin();
    return result < 0 ? pt_fail(fault, result, "sigaction", PT_NONE, 0) : 0;
}

/* A mapped page that the file's end falls into reads as zeros behind it, without a fault: a file
 * that was cut within its last page is only seen by its size. */
static int check_sizes_again(const struct pt_files *files, struct pt_fault *fault)
{
    struct stat status;
    int result = 0;

    for (uint32_t file = 0; file < files->pool->num_files && result == 0; file++) {
        if (lstat(files->pool->paths[file], &status) < 0)
            return pt_fail(fault, -errno, "lstat", file, 0);
        result = check_size(files, file, &status, fault);
    }
    return result;
}

int pt_files_end(const struct pt_files *files, struct pt_fault *fault)
{
    if (!files->source->maps)
        return 0;
    pt_sigbus_end();
    return check_sizes_again(files, fault);
}

static int kept_descriptor(const struct pt_files *files, uint32_t thread, uint32_t file)
{
    uint64_t count = files->first[file + 1] - files->first[file];

    if (count == 0)
        return -1;
    return files->descriptors[files->first[file] + (count > 1 ? thread : 0)];
}

int pt_files_take(const struct pt_files *files, uint32_t thread, uint32_t file,
                  struct pt_fault *fault)
{
    int kept = kept_descriptor(files, thread, file);

    return kept >= 0 ? kept : open_file(files, file, fault);
}

void pt_files_give(const struct pt_files *files, uint32_t thread, uint32_t file, int fd)
{
    if (fd != kept_descriptor(files, thread, file))
        close(fd);
}

static int64_t ask_descriptor(const struct pt_files *files, const struct pt_extent *extent, int fd,
                              struct pt_fault *fault)
{
    bool cachestat = files->residency == PT_RESIDENCY_CACHESTAT;
    int64_t pages = cachestat ? pt_cachestat_pages(fd, extent->offset, extent->length)
                              : pt_mincore_pages(fd, extent->offset, extent->length);

    if (pages < 0)
        return pt_fail(fault, (int)pages, cachestat ? "cachestat" : "mincore", extent->file,
                       extent->offset);
    return pages * files->page_bytes;
}

static int64_t ask_mapping(const struct pt_files *files, const struct pt_extent *extent,
                           struct pt_fault *fault)
{
    const unsigned char *start = files->mapped[extent->file].start;
    int64_t pages = pt_mincore_mapped_pages(start + extent->offset, extent->length);

    if (pages < 0)
        return pt_fail(fault, (int)pages, "mincore", extent->file, extent->offset);
    return pages * files->page_bytes;
}

int64_t pt_files_resident(const struct pt_files *files, uint32_t thread,
                          const struct pt_extent *extent, struct pt_fault *fault)
{
    if (extent->length == 0)
        return 0;
    if (files->source->maps && files->residency == PT_RESIDENCY_MINCORE)
        return ask_mapping(files, extent, fault);
    int fd = pt_files_take(files, thread, extent->file, fault);
    if (fd < 0)
        return fd;
    int64_t bytes = ask_descriptor(files, extent, fd, fault);
    pt_files_give(files, thread, extent->file, fd);
    return bytes;
}

static int note_residency(const struct pt_access *access, struct pt_cost *cost,
                          struct pt_fault *fault)
{
    const struct pt_files *files = access->files;
    const struct pt_extent *extent = access->extent;

    if (files->source->bypasses)
        cost->absent_bytes += extent->length;
    if (files->residency == PT_RESIDENCY_OFF)
        return 0;
    int64_t resident = access->fd >= 0 ? ask_descriptor(files, extent, access->fd, fault)
                                       : pt_files_resident(files, access->thread, extent, fault);
    if (resident < 0)
        return (int)resident;
    cost->resident_bytes += (uint64_t)resident;
    if (!files->source->bypasses)
        cost->absent_bytes += pt_pages_touched(extent->offset, extent->length) * files->page_bytes -
                              (uint64_t)resident;
    return 0;
}

static int read_access(const struct pt_access *access, struct pt_cost *cost,
                       struct pt_fault *fault)
{
    int result = note_residency(access, cost, fault);

    if (result < 0)
        return result;
    uint64_t start = pt_now_ns();
    result = access->files->source->read(access, cost, fault);
    cost->latency_ns += pt_now_ns() - start;
    return result;
}

int pt_files_read(const struct pt_files *files, uint32_t thread, const struct pt_extent *extent,
                  void *into, struct pt_cost *cost, struct pt_fault *fault)
{
    struct pt_access access = {files, extent, into, thread, -1};

    if (extent->length == 0)
        return 0;
    if (files->source->maps)
        return read_access(&access, cost, fault);
    access.fd = pt_files_take(files, thread, extent->file, fault);
    if (access.fd < 0)
        return access.fd;
    int result = read_access(&access, cost, fault);
    pt_files_give(files, thread, extent->file, access.fd);
    return result;
}

static void close_descriptors(struct pt_files *files)
{
    if (!files->descriptors)
        return;
    for (uint64_t i = 0; i < files->first[files->pool->num_files]; i++)
        if (files->descriptors[i] >= 0)
            close(files->descriptors[i]);
}

void pt_files_close(struct pt_files *files)
{
    if (files->source && files->source->end)
        files->source->end(files);
    close_descriptors(files);
    for (uint32_t file = 0; files->mapped && file < files->pool->num_files; file++)
        if (files->mapped[file].start)
            munmap(files->mapped[file].start, files->mapped[file].length);
    free(files->mapped);
    free(files->descriptors);
    free(files->first);
    free(files->needed);
}
