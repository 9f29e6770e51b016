/* SPDX-License-Identifier: Apache-2.0 */
/* One worker that gives hints, taken from one slot that the next hint may overwrite. */
#ifndef PAGETIER_PREFETCH_H
#define PAGETIER_PREFETCH_H

#include <stdint.h>

#include "delivery.h"
#include "files.h"
#include "reader.h"

struct pt_prefetch;

/* Of the bytes that hints had brought for an expert since its read before. Which of an expert's
 * missing pages a hint had brought is not known: as many as there may be count as evicted. */
struct pt_use {
    uint64_t used;
    uint64_t evicted;
};

/* `reading` are the files of the reader, which must outlive the worker. */
int pt_prefetch_open(const struct pt_pool *pool, const struct pt_options *options,
                     const struct pt_files *reading, struct pt_prefetch **prefetch,
                     struct pt_fault *fault);
/* Before a pass. -EOVERFLOW for more records than the slot can name. */
int pt_prefetch_begin(struct pt_prefetch *prefetch, const struct pt_plan *plan,
                      const struct pt_hints *hints, struct pt_pass *pass);
int pt_prefetch_start(struct pt_prefetch *prefetch);
/* A record of this iteration starts being read: an exchange, and a wake-up if the worker sleeps. */
void pt_prefetch_post(struct pt_prefetch *prefetch, uint64_t record, uint64_t iteration);
/* Around a read of an expert, its residency included, of which the second is told the outcome. */
void pt_prefetch_read_starts(struct pt_prefetch *prefetch, uint32_t expert);
struct pt_use pt_prefetch_read_ends(struct pt_prefetch *prefetch, uint32_t expert,
                                    uint64_t resident_bytes);
/* When nothing is posted any more: the worker ends what it has, and its figures go to the pass. */
void pt_prefetch_finish(struct pt_prefetch *prefetch);
/* From any thread, for this pass: the worker drops what it has after the piece in hand. */
void pt_prefetch_abandon(struct pt_prefetch *prefetch);
void pt_prefetch_close(struct pt_prefetch *prefetch);

#endif
