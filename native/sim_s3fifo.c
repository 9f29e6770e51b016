/* SPDX-License-Identifier: Apache-2.0 */
/* S3-FIFO (Yang et al., SOSP 2023) as its authors' libCacheSim 0.3 runs it: a small queue of a tenth
 * of the cache, a main queue with a two-bit clock, and a ghost queue of nine tenths; two uses in the
 * small queue earn a place in the main one; until the first eviction a full small queue passes
 * newcomers on to the main one. */
#include <stdbool.h>
#include <stdlib.h>

#include "sim_list.h"
#include "sim_policy.h"

enum place { ABSENT, SMALL, MAIN, GHOST, PLACES };

enum { PROMOTING_USES = 2, MOST_USES = 3 };

struct entry {
    uint8_t place;
    uint8_t uses;
};

struct s3fifo {
    struct pt_links *links;
    struct entry *entries;
    struct pt_list queues[PLACES];
    uint64_t size[PLACES];
    bool has_evicted;
};

static void close_s3fifo(void *state)
{
    struct s3fifo *cache = state;

    free(cache->links);
    free(cache->entries);
    free(cache);
}

static void *open_s3fifo(const struct pt_sim_stream *stream)
{
    struct s3fifo *cache = calloc(1, sizeof(*cache));

    if (cache == NULL)
        return NULL;
    cache->links = malloc(((uint64_t)stream->num_objects + 1) * sizeof(*cache->links));
    cache->entries = calloc((uint64_t)stream->num_objects + 1, sizeof(*cache->entries));
    if (cache->links != NULL && cache->entries != NULL)
        return cache;
    close_s3fifo(cache);
    return NULL;
}

static void leave(struct s3fifo *cache, uint32_t object, uint64_t size)
{
    enum place place = cache->entries[object].place;

    pt_list_remove(&cache->queues[place], cache->links, object);
    cache->size[place] -= size;
    cache->entries[object] = (struct entry){ABSENT, 0};
}

static void enter(struct s3fifo *cache, uint32_t object, uint64_t size, struct entry entry)
{
    pt_list_append(&cache->queues[entry.place], cache->links, object);
    cache->size[entry.place] += size;
    cache->entries[object] = entry;
}

static void remember(struct s3fifo *cache, const struct pt_sim_part *part, uint32_t object,
                     uint64_t size)
{
    uint64_t room = part->capacity - part->capacity / 10;

    /* Nine tenths rounded down, as a tenth is. */
    room = part->capacity % 10 != 0 ? room - 1 : room;
    if (size > room)
        return;
    while (cache->size[GHOST] + size > room) {
        uint32_t oldest = cache->queues[GHOST].oldest;

        leave(cache, oldest, pt_sim_size(part->stream, oldest));
    }
    enter(cache, object, size, (struct entry){GHOST, 0});
}

static void evict_small(struct s3fifo *cache, const struct pt_sim_part *part)
{
    while (cache->size[SMALL] > 0) {
        uint32_t object = cache->queues[SMALL].oldest;
        uint64_t size = pt_sim_size(part->stream, object);
        uint8_t uses = cache->entries[object].uses;

        leave(cache, object, size);
        if (uses < PROMOTING_USES) {
            remember(cache, part, object, size);
            return;
        }
        enter(cache, object, size, (struct entry){MAIN, 0});
    }
}

static void evict_main(struct s3fifo *cache, const struct pt_sim_part *part)
{
    for (;;) {
        uint32_t object = cache->queues[MAIN].oldest;
        uint64_t size = pt_sim_size(part->stream, object);
        uint8_t uses = cache->entries[object].uses;

        leave(cache, object, size);
        if (uses == 0)
            return;
        enter(cache, object, size, (struct entry){MAIN, (uint8_t)(uses - 1)});
    }
}

static void evict(struct s3fifo *cache, const struct pt_sim_part *part)
{
    uint64_t main_capacity = part->capacity - part->capacity / 10;

    cache->has_evicted = true;
    if (cache->size[MAIN] > main_capacity || cache->size[SMALL] == 0)
        evict_main(cache, part);
    else
        evict_small(cache, part);
}

static bool resident(void *state, uint32_t object)
{
    enum place place = ((struct s3fifo *)state)->entries[object].place;

    return place == SMALL || place == MAIN;
}

static void touch(void *state, const struct pt_sim_part *part, uint32_t object)
{
    struct entry *entry = &((struct s3fifo *)state)->entries[object];

    (void)part;
    if (entry->uses < MOST_USES)
        entry->uses++;
}

static void admit(void *state, const struct pt_sim_part *part, uint32_t object)
{
    struct s3fifo *cache = state;
    uint64_t size = pt_sim_size(part->stream, object);
    enum place to = MAIN;

    if (size > part->capacity)
        return;
    if (cache->entries[object].place == GHOST) {
        leave(cache, object, size);
        while (cache->size[SMALL] + cache->size[MAIN] + size > part->capacity)
            evict(cache, part);
    } else {
        while (cache->size[SMALL] + cache->size[MAIN] + size > part->capacity)
            evict(cache, part);
        if (cache->has_evicted || cache->size[SMALL] < part->capacity / 10)
            to = SMALL;
    }
    enter(cache, object, size, (struct entry){(uint8_t)to, 0});
}

static void run_s3fifo(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    struct s3fifo *cache = state;

    cache->has_evicted = false;
    for (int place = 0; place < PLACES; place++)
        cache->queues[place] = PT_EMPTY_LIST;
    pt_sim_replay(cache, part, hit, resident, touch, admit);
    for (int place = SMALL; place < PLACES; place++)
        while (cache->size[place] > 0) {
            uint32_t object = cache->queues[place].oldest;

            leave(cache, object, pt_sim_size(part->stream, object));
        }
}

const struct pt_sim_policy pt_sim_s3fifo = {open_s3fifo, run_s3fifo, close_s3fifo};
