/* SPDX-License-Identifier: Apache-2.0 */
/* SIEVE (Zhang et al., NSDI 2024): one queue, and a hand that goes from the oldest to the newest and
 * takes the first object that was not used since it passed. */
#include <stdbool.h>
#include <stdlib.h>

#include "sim_list.h"
#include "sim_policy.h"

struct entry {
    uint8_t resident;
    uint8_t used;
};

struct sieve {
    struct pt_links *links;
    struct entry *entries;
    struct pt_list queue;
    uint32_t hand;
    uint64_t size;
};

static void close_sieve(void *state)
{
    struct sieve *sieve = state;

    free(sieve->links);
    free(sieve->entries);
    free(sieve);
}

static void *open_sieve(const struct pt_sim_stream *stream)
{
    struct sieve *sieve = calloc(1, sizeof(*sieve));

    if (sieve == NULL)
        return NULL;
    sieve->links = malloc(((uint64_t)stream->num_objects + 1) * sizeof(*sieve->links));
    sieve->entries = calloc((uint64_t)stream->num_objects + 1, sizeof(*sieve->entries));
    if (sieve->links != NULL && sieve->entries != NULL)
        return sieve;
    close_sieve(sieve);
    return NULL;
}

static void drop(struct sieve *sieve, const struct pt_sim_part *part, uint32_t object)
{
    pt_list_remove(&sieve->queue, sieve->links, object);
    sieve->entries[object] = (struct entry){0, 0};
    sieve->size -= pt_sim_size(part->stream, object);
}

static void evict(struct sieve *sieve, const struct pt_sim_part *part)
{
    uint32_t object = sieve->hand != PT_NO_OBJECT ? sieve->hand : sieve->queue.oldest;

    while (sieve->entries[object].used) {
        sieve->entries[object].used = 0;
        object = sieve->links[object].newer;
        if (object == PT_NO_OBJECT)
            object = sieve->queue.oldest;
    }
    sieve->hand = sieve->links[object].newer;
    drop(sieve, part, object);
}

static bool resident(void *state, uint32_t object)
{
    return ((struct sieve *)state)->entries[object].resident;
}

static void touch(void *state, const struct pt_sim_part *part, uint32_t object)
{
    (void)part;
    ((struct sieve *)state)->entries[object].used = 1;
}

static void admit(void *state, const struct pt_sim_part *part, uint32_t object)
{
    struct sieve *sieve = state;
    uint64_t size = pt_sim_size(part->stream, object);

    if (size > part->capacity)
        return;
    while (sieve->size + size > part->capacity)
        evict(sieve, part);
    pt_list_append(&sieve->queue, sieve->links, object);
    sieve->entries[object] = (struct entry){1, 0};
    sieve->size += size;
}

static void run_sieve(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    struct sieve *sieve = state;

    sieve->queue = PT_EMPTY_LIST;
    sieve->hand = PT_NO_OBJECT;
    pt_sim_replay(sieve, part, hit, resident, touch, admit);
    while (sieve->size > 0)
        drop(sieve, part, sieve->queue.oldest);
}

const struct pt_sim_policy pt_sim_sieve = {open_sieve, run_sieve, close_sieve};
