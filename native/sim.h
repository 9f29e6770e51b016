/* SPDX-License-Identifier: Apache-2.0 */
/* Caches of whole objects (experts), replayed exactly.
 *
 * A stream is a list of accesses cut into groups (events), and the groups into parts: every part is
 * replayed by a cache of its own that starts empty.  With `group_start` the replay is event-atomic:
 * a group is classified as a whole against what was resident when it started, then its members are
 * touched and admitted in the order given, then the cache is cut back to its capacity.  Without it
 * every access is a group of its own, admitted at once: access replay.
 *
 * Policies differ in what they keep:
 *   LRU           the most recently used
 *   LFU           the most often used since the part began, also while absent; then the most recent
 *   LFU_IN_CACHE  the same with counts that are forgotten on eviction
 *   LFRU          the greatest count / age; age counts groups since the last use, that one included
 *   LEAST_STALE   what this cycle used, then the most recent
 *   BELADY        the soonest used again, the newcomer included (it may be refused)
 *   BELADY_FORCED the same, but every newcomer is admitted
 *   ARC, S3FIFO, SIEVE   as published
 * Event-atomic LRU, LFU, LFRU, LEAST_STALE and BELADY keep the best of the residents and the group's
 * members together; the others touch the group's hits and then admit its misses one by one.  Where
 * the rule leaves a tie the object with the lower rank goes first (BELADY: the later in its group).
 * An object larger than the whole cache is never admitted. */
#ifndef PAGETIER_SIM_H
#define PAGETIER_SIM_H

#include <stdint.h>

#define PT_SIM_LRU 0
#define PT_SIM_LFU 1
#define PT_SIM_LFU_IN_CACHE 2
#define PT_SIM_LFRU 3
#define PT_SIM_LEAST_STALE 4
#define PT_SIM_BELADY 5
#define PT_SIM_BELADY_FORCED 6
#define PT_SIM_ARC 7
#define PT_SIM_S3FIFO 8
#define PT_SIM_SIEVE 9

/* Members of a group are distinct and stand in ascending order of rank. */
struct pt_sim_stream {
    const uint32_t *objects;
    const uint64_t *group_start; /* num_groups + 1, or NULL: access replay */
    const uint32_t *group_time;  /* what ages are counted in; NULL: the group's number */
    const uint32_t *group_cycle; /* LEAST_STALE's generations; NULL: one for all */
    const uint64_t *part_start;  /* num_parts + 1, in groups */
    const uint64_t *capacity;    /* of each part, in the unit of object_size */
    const uint64_t *object_size; /* NULL: every object is 1; ARC takes no other */
    const uint32_t *object_rank; /* NULL: the object's number */
    uint64_t num_accesses;
    uint64_t num_parts;
    uint32_t num_objects;
};

/* hit[i] = 1 when access i found its object, else 0.  0, -ENOMEM, or -EINVAL for a stream that is
 * not as described above. */
int pt_sim_run(uint32_t policy, const struct pt_sim_stream *stream, uint8_t *hit);

/* Stack distances, for objects of one size: access i hits in every cache of at least distance[i]
 * objects, in none when it is 0.  `capacity` and `object_size` are not read. */
int pt_sim_lru_distances(const struct pt_sim_stream *stream, uint32_t *distance);
int pt_sim_belady_distances(const struct pt_sim_stream *stream, uint32_t *distance);

#endif
