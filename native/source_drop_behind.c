/* SPDX-License-Identifier: Apache-2.0 */
/* Through the page cache, and out of it again.  The kernel drops whole pages only: an edge page that
 * an extent shares with its neighbour stays (invalidating it would cost the neighbour a read), and
 * so does a page that is mapped elsewhere. */
#include <fcntl.h>

#include "source.h"

static int read_and_drop(const struct pt_access *access, struct pt_cost *cost,
                         struct pt_fault *fault)
{
    const struct pt_extent *extent = access->extent;
    int result = pt_read_whole(access, cost, fault);

    if (result < 0)
        return result;
    result = -posix_fadvise(access->fd, (off_t)extent->offset, (off_t)extent->length,
                            POSIX_FADV_DONTNEED);
    return result < 0 ? pt_fail(fault, result, "posix_fadvise", extent->file, extent->offset) : 0;
}

const struct pt_source pt_source_drop_behind = {.read = read_and_drop};
