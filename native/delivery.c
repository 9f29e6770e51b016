/* SPDX-License-Identifier: Apache-2.0 */
#include "delivery.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

int pt_deliver_fadvise(const struct pt_courier *courier, const struct pt_piece *piece,
                       struct pt_fault *fault)
{
    int fd = pt_files_take(courier->files, 0, piece->file, fault);

    if (fd < 0)
        return fd;
    int result = -posix_fadvise(fd, (off_t)piece->offset, (off_t)piece->length,
                                POSIX_FADV_WILLNEED);
    pt_files_give(courier->files, 0, piece->file, fd);
    if (result < 0)
        return pt_fail(fault, result, "posix_fadvise", piece->file, piece->offset);
    return 0;
}

int pt_deliver_madvise(const struct pt_courier *courier, const struct pt_piece *piece,
                       struct pt_fault *fault)
{
    unsigned char *start = courier->mapped->mapped[piece->file].start + piece->offset;

    if (madvise(start, piece->length, MADV_WILLNEED) < 0)
        return pt_fail(fault, -errno, "madvise", piece->file, piece->offset);
    return 0;
}

int pt_deliver_blocking(const struct pt_courier *courier, const struct pt_piece *piece,
                        struct pt_fault *fault)
{
    struct pt_extent extent = {piece->file, piece->offset, piece->length};
    struct pt_access access = {courier->files, &extent, courier->buffer, 0, -1};
    struct pt_cost cost = {0};

    access.fd = pt_files_take(courier->files, 0, piece->file, fault);
    if (access.fd < 0)
        return access.fd;
    int result = pt_read_whole(&access, &cost, fault);
    pt_files_give(courier->files, 0, piece->file, access.fd);
    return result;
}
