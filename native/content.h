/* SPDX-License-Identifier: Apache-2.0 */
/* Expert content that can be computed from (seed, expert, offset), so that any read of a pool made
 * by pagetier can be verified without a second copy.  Incompressible by construction. */
#ifndef PAGETIER_CONTENT_H
#define PAGETIER_CONTENT_H

#include <stddef.h>
#include <stdint.h>

void pt_content_fill(void *buffer, size_t length, uint64_t seed, uint32_t expert, uint64_t offset);
/* Index of the first byte that differs, or `length` when all agree. */
size_t pt_content_mismatch(const void *buffer, size_t length, uint64_t seed, uint32_t expert,
                           uint64_t offset);
/* Writes `length` bytes of an expert's content at file_offset, looping over short writes.
 * 0 or -errno.  `written` is advanced as the bytes go out and may be read by another thread;
 * a non-zero *cancel ends the write with -ECANCELED. */
int pt_content_write(int fd, uint64_t file_offset, uint64_t length, uint64_t seed, uint32_t expert,
                     uint64_t *written, const int *cancel);
/* Reads `length` bytes back and compares.  0, -errno, -ENODATA on a short file, or -EILSEQ with
 * *mismatch set to the expert offset of the first wrong byte. */
int pt_content_verify(int fd, uint64_t file_offset, uint64_t length, uint64_t seed, uint32_t expert,
                      uint64_t *mismatch);

#endif
