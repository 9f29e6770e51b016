/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "residency.h"
#include "sigbus.h"

uint64_t pt_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int pt_fail(struct pt_fault *fault, int result, const char *call, uint32_t file, uint64_t offset)
{
    snprintf(fault->call, sizeof fault->call, "%s", call);
    fault->file = file;
    fault->offset = offset;
    return result;
}

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

static int open_file(const struct pt_files *files, uint32_t file, struct pt_fault *fault)
{
    /* O_NONBLOCK: a FIFO in the place of a pool file must not hang the open. */
    int fd = open(files->pool->paths[file], O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return pt_fail(fault, -errno, "open", file, 0);
    if (files->mode == PT_MMAP)
        return fd;
    int result = advise_descriptor(files, fd);
    if (result < 0) {
        close(fd);
        return pt_fail(fault, result, "posix_fadvise", file, 0);
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

static int prepare_file(struct pt_files *files, uint32_t file, struct pt_fault *fault)
{
    int fd = open_file(files, file, fault);

    if (fd < 0)
        return fd;
    int result = check_file(files, file, fd, fault);
    if (result == 0 && files->first[file] < files->first[file + 1])
        return keep_file(files, file, fd, fault);
    if (result == 0 && files->mode == PT_MMAP)
        result = map_file(files, file, fd, fault);
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

/* Fills `first` for an unlimited number of descriptors. */
static void count_descriptors(const struct pt_pool *pool, uint32_t threads, uint64_t *first)
{
    for (uint64_t i = 0; i < pool->num_extents; i++)
        first[pool->extents[i].file + 1]++;
    for (uint32_t file = 0; file < pool->num_files; file++)
        first[file + 1] = first[file] + (first[file + 1] > 1 ? threads : 1);
}

int pt_files_descriptors(const struct pt_pool *pool, uint32_t threads, uint64_t *descriptors)
{
    uint64_t *first = calloc((size_t)pool->num_files + 1, sizeof *first);

    if (!first)
        return -ENOMEM;
    count_descriptors(pool, threads, first);
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

static int allocate_descriptors(struct pt_files *files, uint64_t max_descriptors)
{
    uint32_t num_files = files->pool->num_files;

    files->first = calloc((size_t)num_files + 1, sizeof *files->first);
    if (!files->first)
        return -ENOMEM;
    if (files->mode == PT_PREAD) {
        count_descriptors(files->pool, files->threads, files->first);
        limit_descriptors(files, max_descriptors);
    }
    uint64_t count = files->first[num_files];
    files->descriptors = malloc((count + 1) * sizeof *files->descriptors);
    for (uint64_t i = 0; files->descriptors && i < count; i++)
        files->descriptors[i] = -1;
    return files->descriptors ? 0 : -ENOMEM;
}

static int allocate(struct pt_files *files, uint64_t max_descriptors)
{
    size_t at_least_one = (size_t)files->pool->num_files + 1; /* calloc(0) may be NULL */

    files->needed = calloc(at_least_one, sizeof *files->needed);
    files->mapped = calloc(at_least_one, sizeof *files->mapped);
    if (!files->needed || !files->mapped)
        return -ENOMEM;
    return allocate_descriptors(files, max_descriptors);
}

int pt_files_open(struct pt_files *files, const struct pt_pool *pool,
                  const struct pt_options *options, struct pt_fault *fault)
{
    *files = (struct pt_files){
        .pool = pool,
        .mode = options->mode,
        .advice = options->advice,
        .residency = options->residency,
        .page_bytes = (uint32_t)pt_page_bytes(),
        .threads = options->threads,
    };
    int result = allocate(files, options->max_descriptors);
    if (result < 0)
        return pt_fail(fault, result, "calloc", PT_NONE, 0);
    find_needed(files);
    for (uint32_t file = 0; file < pool->num_files && result == 0; file++)
        result = prepare_file(files, file, fault);
    return result;
}

int pt_files_begin(const struct pt_files *files, struct pt_fault *fault)
{
    if (files->mode != PT_MMAP)
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
    if (files->mode != PT_MMAP)
        return 0;
    pt_sigbus_end();
    return check_sizes_again(files, fault);
}

static int add_absent(const struct pt_files *files, const struct pt_extent *extent,
                      int64_t resident_pages, const char *call, struct pt_cost *cost,
                      struct pt_fault *fault)
{
    if (resident_pages < 0)
        return pt_fail(fault, (int)resident_pages, call, extent->file, extent->offset);
    uint64_t pages = pt_pages_touched(extent->offset, extent->length);
    cost->absent_bytes += (pages - (uint64_t)resident_pages) * files->page_bytes;
    return 0;
}

static int note_residency(const struct pt_files *files, const struct pt_extent *extent, int fd,
                          struct pt_cost *cost, struct pt_fault *fault)
{
    if (files->residency == PT_RESIDENCY_CACHESTAT)
        return add_absent(files, extent, pt_cachestat_pages(fd, extent->offset, extent->length),
                          "cachestat", cost, fault);
    if (files->residency == PT_RESIDENCY_MINCORE)
        return add_absent(files, extent, pt_mincore_pages(fd, extent->offset, extent->length),
                          "mincore", cost, fault);
    return 0;
}

static int read_whole(int fd, const struct pt_extent *extent, unsigned char *into,
                      struct pt_fault *fault)
{
    uint64_t done = 0;

    while (done < extent->length) {
        ssize_t n = pread(fd, into + done, extent->length - done, (off_t)(extent->offset + done));

        if (n > 0)
            done += (uint64_t)n;
        else if (n == 0)
            return pt_fail(fault, -ENODATA, "pread", extent->file, extent->offset + done);
        else if (errno != EINTR)
            return pt_fail(fault, -errno, "pread", extent->file, extent->offset + done);
    }
    return 0;
}

static int read_descriptor(const struct pt_files *files, int fd, const struct pt_extent *extent,
                           void *into, struct pt_cost *cost, struct pt_fault *fault)
{
    int result = note_residency(files, extent, fd, cost, fault);

    if (result < 0)
        return result;
    uint64_t start = pt_now_ns();
    result = read_whole(fd, extent, into, fault);
    cost->latency_ns += pt_now_ns() - start;
    return result;
}

/* What a fault at `offset` of a mapped file means: the file's end, or a device that failed. */
static int fault_reason(const struct pt_files *files, uint32_t file, uint64_t offset)
{
    struct stat status;

    if (lstat(files->pool->paths[file], &status) < 0)
        return -EIO;
    return (uint64_t)status.st_size <= offset ? -ENODATA : -EIO;
}

static int read_mapping(const struct pt_files *files, const struct pt_extent *extent, void *into,
                        struct pt_cost *cost, struct pt_fault *fault)
{
    const unsigned char *start = files->mapped[extent->file].start;
    const unsigned char *from = start + extent->offset;
    const void *fault_at = NULL;
    int result = 0;

    if (files->residency == PT_RESIDENCY_MINCORE)
        result = add_absent(files, extent, pt_mincore_mapped_pages(from, extent->length), "mincore",
                            cost, fault);
    if (result < 0)
        return result;
    uint64_t begin = pt_now_ns();
    result = pt_sigbus_copy(into, from, extent->length, &fault_at);
    cost->latency_ns += pt_now_ns() - begin;
    if (result == 0)
        return 0;
    uint64_t offset = (uint64_t)((const unsigned char *)fault_at - start);
    return pt_fail(fault, fault_reason(files, extent->file, offset), "memcpy", extent->file,
                   offset);
}

static int kept_descriptor(const struct pt_files *files, uint32_t thread, uint32_t file)
{
    uint64_t count = files->first[file + 1] - files->first[file];

    if (count == 0)
        return -1;
    return files->descriptors[files->first[file] + (count > 1 ? thread : 0)];
}

int pt_files_read(const struct pt_files *files, uint32_t thread, const struct pt_extent *extent,
                  void *into, struct pt_cost *cost, struct pt_fault *fault)
{
    if (extent->length == 0)
        return 0;
    if (files->mode == PT_MMAP)
        return read_mapping(files, extent, into, cost, fault);
    int kept = kept_descriptor(files, thread, extent->file);
    if (kept >= 0)
        return read_descriptor(files, kept, extent, into, cost, fault);
    int fd = open_file(files, extent->file, fault);
    if (fd < 0)
        return fd;
    int result = read_descriptor(files, fd, extent, into, cost, fault);
    close(fd);
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
    close_descriptors(files);
    for (uint32_t file = 0; files->mapped && file < files->pool->num_files; file++)
        if (files->mapped[file].start)
            munmap(files->mapped[file].start, files->mapped[file].length);
    free(files->mapped);
    free(files->descriptors);
    free(files->first);
    free(files->needed);
}
