/* SPDX-License-Identifier: Apache-2.0 */
/* How a hint reaches the kernel, a piece of a file at a time. */
#ifndef PAGETIER_DELIVERY_H
#define PAGETIER_DELIVERY_H

#include <stdint.h>

#include "files.h"

/* Bytes of a file; `offset` is the start of a page. */
struct pt_piece {
    uint32_t file;
    uint64_t offset;
    uint64_t length;
};

struct pt_courier {
    const struct pt_files *files;  /* open for the worker alone */
    const struct pt_files *mapped; /* those of the reader, where it maps */
    unsigned char *buffer;         /* for the largest piece */
};

typedef int pt_deliver(const struct pt_courier *courier, const struct pt_piece *piece,
                       struct pt_fault *fault);

pt_deliver pt_deliver_fadvise;  /* POSIX_FADV_WILLNEED */
pt_deliver pt_deliver_madvise;  /* MADV_WILLNEED */
pt_deliver pt_deliver_blocking; /* reads it */

#endif
