/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a file range is in the page cache. */
#ifndef PAGETIER_RESIDENCY_H
#define PAGETIER_RESIDENCY_H

#include <stdint.h>

uint64_t pt_page_bytes(void);
/* Pages that [offset, offset + length) touches. */
uint64_t pt_pages_touched(uint64_t offset, uint64_t length);

/* Pages resident of the pages that [offset, offset + length) touches, or -errno.
 * cachestat(2), Linux 6.5: -ENOSYS before; -EPERM for a file that is neither owned nor writable.
 * Counts a page whose read is still under way; mincore(2) does not. */
int64_t pt_cachestat_pages(int fd, uint64_t offset, uint64_t length);
/* 1 when mincore(2) tells the truth about this file, else 0, or -errno.  Without ownership or write
 * permission the kernel (5.2+) reports every page resident: do not ask it then. */
int pt_mincore_trusted(int fd);
/* mincore(2) through a mapping made for the call. */
int64_t pt_mincore_pages(int fd, uint64_t offset, uint64_t length);
/* The low bit of present[i] tells of the i-th page. 0 or -errno. */
int pt_mincore_list(int fd, uint64_t offset, uint64_t length, unsigned char *present);
/* The number again, over a mapping that stands already; `address` need not be page-aligned. */
int64_t pt_mincore_mapped_pages(const void *address, uint64_t length);

#endif
