/* SPDX-License-Identifier: Apache-2.0 */
/* Two generations: what this cycle used, and the rest, which goes first. */
#include <stdlib.h>

#include "sim_list.h"
#include "sim_policy.h"

enum generation { STALE, FRESH, GENERATIONS };

struct entry {
    uint32_t cycle;
    uint32_t resident;
};

struct least_stale {
    struct pt_links *links;
    struct entry *entries;
    struct pt_list lists[GENERATIONS];
    uint32_t cycle;
    uint64_t size;
};

static void close_least_stale(void *state)
{
    struct least_stale *cache = state;

    free(cache->links);
    free(cache->entries);
    free(cache);
}

static void *open_least_stale(const struct pt_sim_stream *stream)
{
    struct least_stale *cache = calloc(1, sizeof(*cache));

    if (cache == NULL)
        return NULL;
    cache->links = malloc(((uint64_t)stream->num_objects + 1) * sizeof(*cache->links));
    cache->entries = calloc((uint64_t)stream->num_objects + 1, sizeof(*cache->entries));
    if (cache->links != NULL && cache->entries != NULL)
        return cache;
    close_least_stale(cache);
    return NULL;
}

static void leave(struct least_stale *cache, uint32_t object)
{
    enum generation generation = cache->entries[object].cycle == cache->cycle ? FRESH : STALE;

    pt_list_remove(&cache->lists[generation], cache->links, object);
}

static void shrink(struct least_stale *cache, const struct pt_sim_stream *stream,
                   uint64_t capacity)
{
    while (cache->size > capacity) {
        enum generation first = cache->lists[STALE].oldest != PT_NO_OBJECT ? STALE : FRESH;
        uint32_t victim = cache->lists[first].oldest;

        leave(cache, victim);
        cache->entries[victim].resident = 0;
        cache->size -= pt_sim_size(stream, victim);
    }
}

static void use(struct least_stale *cache, const struct pt_sim_part *part, uint32_t object)
{
    uint64_t size = pt_sim_size(part->stream, object);

    if (size > part->capacity)
        return;
    if (cache->entries[object].resident)
        leave(cache, object);
    else
        cache->size += size;
    cache->entries[object] = (struct entry){cache->cycle, 1};
    pt_list_append(&cache->lists[FRESH], cache->links, object);
}

static void start_group(struct least_stale *cache, const struct pt_sim_stream *stream,
                        uint64_t group)
{
    uint32_t cycle = stream->group_cycle != NULL ? stream->group_cycle[group] : 0;

    if (cycle == cache->cycle)
        return;
    cache->cycle = cycle;
    pt_list_join(&cache->lists[STALE], cache->links, &cache->lists[FRESH]);
}

static void run_group(struct least_stale *cache, const struct pt_sim_part *part, uint64_t group,
                      uint8_t *hit)
{
    const struct pt_sim_stream *stream = part->stream;
    uint64_t begin = pt_sim_access(stream, group), end = pt_sim_access(stream, group + 1);

    start_group(cache, stream, group);
    for (uint64_t i = begin; i < end; i++) {
        hit[i] = (uint8_t)cache->entries[stream->objects[i]].resident;
        use(cache, part, stream->objects[i]);
    }
    shrink(cache, stream, part->capacity);
}

static void run_least_stale(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    struct least_stale *cache = state;

    cache->lists[STALE] = cache->lists[FRESH] = PT_EMPTY_LIST;
    for (uint64_t group = part->first_group; group < part->end_group; group++)
        run_group(cache, part, group, hit);
    shrink(cache, part->stream, 0);
}

const struct pt_sim_policy pt_sim_least_stale = {open_least_stale, run_least_stale,
                                                 close_least_stale};
