/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include "reader.h"

const struct pt_source *pt_source_of(uint32_t mode)
{
    static const struct pt_source *const sources[] = {
        [PT_PREAD] = &pt_source_pread,
        [PT_MMAP] = &pt_source_mmap,
        [PT_POPULATE] = &pt_source_populate,
        [PT_DIRECT] = &pt_source_direct,
        [PT_DONTCACHE] = &pt_source_dontcache,
        [PT_DROP_BEHIND] = &pt_source_drop_behind,
    };

    return sources[mode];
}
