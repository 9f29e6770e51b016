/* SPDX-License-Identifier: Apache-2.0 */
/* Out of a mapping: the copy takes the faults. */
#include <errno.h>
#include <sys/stat.h>

#include "files.h"
#include "sigbus.h"
#include "source.h"

int pt_mapping_fault(const struct pt_files *files, uint32_t file, uint64_t offset)
{
    struct stat status;

    if (lstat(files->pool->paths[file], &status) < 0)
        return -EIO;
    return (uint64_t)status.st_size <= offset ? -ENODATA : -EIO;
}

int pt_copy_mapped(const struct pt_access *access, struct pt_cost *cost, struct pt_fault *fault)
{
    const struct pt_extent *extent = access->extent;
    const unsigned char *start = access->files->mapped[extent->file].start;
    const void *fault_at = NULL;

    (void)cost;
    if (pt_sigbus_copy(access->into, start + extent->offset, extent->length, &fault_at) == 0)
        return 0;
    uint64_t offset = (uint64_t)((const unsigned char *)fault_at - start);
    return pt_fail(fault, pt_mapping_fault(access->files, extent->file, offset), "memcpy",
                   extent->file, offset);
}

const struct pt_source pt_source_mmap = {.maps = true, .read = pt_copy_mapped};
