/* SPDX-License-Identifier: Apache-2.0 */
/* Out of a mapping whose pages are brought and mapped by one call before the copy.  Linux 5.14. */
#include <errno.h>
#include <sys/mman.h>

#include "files.h"
#include "source.h"

/* Absent from the headers of older C libraries. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* The kernel looks at the advice before it finds that the range is empty. */
static int prepare(struct pt_files *files, uint32_t file, int fd, struct pt_fault *fault)
{
    void *start = files->mapped[file].start;

    (void)fd;
    if (start && madvise(start, 0, MADV_POPULATE_READ) < 0)
        return pt_fail(fault, -errno, "madvise", file, 0);
    return 0;
}

/* It says that a page could not be brought, and not which one: the copy finds it. */
static bool is_page_fault(int code)
{
    return code == EFAULT || code == EHWPOISON;
}

static int populate(const struct pt_access *access, struct pt_cost *cost, struct pt_fault *fault)
{
    const struct pt_extent *extent = access->extent;
    uint64_t in_page = extent->offset % access->files->page_bytes;
    unsigned char *from = access->files->mapped[extent->file].start + extent->offset - in_page;
    int result;

    do
        result = madvise(from, in_page + extent->length, MADV_POPULATE_READ);
    while (result < 0 && (errno == EINTR || errno == EAGAIN));
    if (result < 0 && !is_page_fault(errno))
        return pt_fail(fault, -errno, "madvise", extent->file, extent->offset);
    return pt_copy_mapped(access, cost, fault);
}

const struct pt_source pt_source_populate = {.maps = true, .prepare = prepare, .read = populate};
