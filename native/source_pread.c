/* SPDX-License-Identifier: Apache-2.0 */
/* Through the page cache: one pread, continued where it comes short. */
#include <errno.h>
#include <unistd.h>

#include "source.h"

int pt_read_whole(const struct pt_access *access, struct pt_cost *cost, struct pt_fault *fault)
{
    const struct pt_extent *extent = access->extent;
    uint64_t done = 0;

    (void)cost;
    while (done < extent->length) {
        ssize_t n = pread(access->fd, access->into + done, extent->length - done,
                          (off_t)(extent->offset + done));

        if (n > 0)
            done += (uint64_t)n;
        else if (n == 0)
            return pt_fail(fault, -ENODATA, "pread", extent->file, extent->offset + done);
        else if (errno != EINTR)
            return pt_fail(fault, -errno, "pread", extent->file, extent->offset + done);
    }
    return 0;
}

const struct pt_source pt_source_pread = {.read = pt_read_whole};
