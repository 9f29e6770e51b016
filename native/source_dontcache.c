/* SPDX-License-Identifier: Apache-2.0 */
/* Through the page cache, which drops after the read what the read brought.  Linux 6.14, on the file
 * systems that declare it. */
#include <errno.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "files.h"
#include "source.h"

/* Absent from the headers of older kernels. */
#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80
#endif

static ssize_t read_some(int fd, unsigned char *into, uint64_t length, uint64_t offset)
{
    struct iovec piece = {into, length};

    return preadv2(fd, &piece, 1, (off_t)offset, RWF_DONTCACHE);
}

/* Behind the end of the file there is nothing to read, but the flag is looked at all the same. */
static int prepare(struct pt_files *files, uint32_t file, int fd, struct pt_fault *fault)
{
    unsigned char nothing;
    struct stat status;

    (void)files;
    if (fstat(fd, &status) < 0)
        return pt_fail(fault, -errno, "fstat", file, 0);
    if (read_some(fd, &nothing, 1, (uint64_t)status.st_size) >= 0)
        return 0;
    /* ENOSYS: a kernel, or an emulator of one, without preadv2 itself. */
    int code = errno == ENOSYS || errno == EINVAL ? EOPNOTSUPP : errno;
    return pt_fail(fault, -code, "preadv2", file, 0);
}

static int read_dropping(const struct pt_access *access, struct pt_cost *cost,
                         struct pt_fault *fault)
{
    const struct pt_extent *extent = access->extent;
    uint64_t done = 0;

    (void)cost;
    while (done < extent->length) {
        ssize_t n = read_some(access->fd, access->into + done, extent->length - done,
                              extent->offset + done);

        if (n > 0)
            done += (uint64_t)n;
        else if (n == 0)
            return pt_fail(fault, -ENODATA, "preadv2", extent->file, extent->offset + done);
        else if (errno != EINTR)
            return pt_fail(fault, -errno, "preadv2", extent->file, extent->offset + done);
    }
    return 0;
}

const struct pt_source pt_source_dontcache = {.prepare = prepare, .read = read_dropping};
