/* SPDX-License-Identifier: Apache-2.0 */
/* What O_DIRECT asks of a file. */
#ifndef PAGETIER_ALIGNMENT_H
#define PAGETIER_ALIGNMENT_H

#include <stdint.h>

struct pt_alignment {
    uint32_t file_bytes;   /* of offsets and lengths; a power of two */
    uint32_t memory_bytes; /* of buffers */
};

/* Of a file opened with O_DIRECT: by statx (Linux 6.1), before that by trying.  -EOPNOTSUPP: the
 * file system reads this file through the page cache, or not at all. */
int pt_alignment_of(int fd, struct pt_alignment *alignment);

#endif
