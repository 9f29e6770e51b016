/* SPDX-License-Identifier: Apache-2.0 */
/* ARC (Megiddo and Modha, FAST 2003), for objects of one size. */
#include <stdbool.h>
#include <stdlib.h>

#include "sim_list.h"
#include "sim_policy.h"

enum place { ABSENT, RECENT, FREQUENT, RECENT_GHOST, FREQUENT_GHOST, PLACES };

struct arc {
    struct pt_links *links;
    uint8_t *place;
    struct pt_list lists[PLACES];
    uint64_t length[PLACES];
    double target; /* of the recent list: p in the paper, which is no whole number either */
};

static void close_arc(void *state)
{
    struct arc *arc = state;

    free(arc->links);
    free(arc->place);
    free(arc);
}

static void *open_arc(const struct pt_sim_stream *stream)
{
    struct arc *arc = calloc(1, sizeof(*arc));

    if (arc == NULL)
        return NULL;
    arc->links = malloc(((uint64_t)stream->num_objects + 1) * sizeof(*arc->links));
    arc->place = calloc((uint64_t)stream->num_objects + 1, sizeof(*arc->place));
    if (arc->links != NULL && arc->place != NULL)
        return arc;
    close_arc(arc);
    return NULL;
}

static void move(struct arc *arc, uint32_t object, enum place to)
{
    enum place from = arc->place[object];

    if (from != ABSENT) {
        pt_list_remove(&arc->lists[from], arc->links, object);
        arc->length[from]--;
    }
    if (to != ABSENT) {
        pt_list_append(&arc->lists[to], arc->links, object);
        arc->length[to]++;
    }
    arc->place[object] = (uint8_t)to;
}

static void move_oldest(struct arc *arc, enum place from, enum place to)
{
    move(arc, arc->lists[from].oldest, to);
}

/* REPLACE of the paper. */
static void replace(struct arc *arc, bool was_frequent)
{
    double recent = (double)arc->length[RECENT];

    if (recent > 0 && (recent > arc->target || (recent == arc->target && was_frequent) ||
                       arc->length[FREQUENT] == 0))
        move_oldest(arc, RECENT, RECENT_GHOST);
    else
        move_oldest(arc, FREQUENT, FREQUENT_GHOST);
}

static double step(double other, double own)
{
    return other > own ? other / own : 1;
}

static void adapt(struct arc *arc, enum place ghost, double capacity)
{
    double recent = (double)arc->length[RECENT_GHOST];
    double frequent = (double)arc->length[FREQUENT_GHOST];

    if (ghost == RECENT_GHOST) {
        arc->target += step(frequent, recent);
        arc->target = arc->target < capacity ? arc->target : capacity;
    } else {
        arc->target -= step(recent, frequent);
        arc->target = arc->target > 0 ? arc->target : 0;
    }
}

/* Case IV of the paper: makes room for an object that no list remembers. */
static void make_room(struct arc *arc, uint64_t capacity)
{
    uint64_t resident = arc->length[RECENT] + arc->length[FREQUENT];
    uint64_t once = arc->length[RECENT] + arc->length[RECENT_GHOST];
    uint64_t all = once + arc->length[FREQUENT] + arc->length[FREQUENT_GHOST];

    if (once == capacity) {
        if (arc->length[RECENT_GHOST] == 0) {
            move_oldest(arc, RECENT, ABSENT);
            return;
        }
        move_oldest(arc, RECENT_GHOST, ABSENT);
    } else if (all == 2 * capacity) {
        move_oldest(arc, FREQUENT_GHOST, ABSENT);
    }
    if (resident == capacity)
        replace(arc, false);
}

static bool resident(void *state, uint32_t object)
{
    enum place place = ((struct arc *)state)->place[object];

    return place == RECENT || place == FREQUENT;
}

static void touch(void *state, const struct pt_sim_part *part, uint32_t object)
{
    (void)part;
    move(state, object, FREQUENT);
}

static void admit(void *state, const struct pt_sim_part *part, uint32_t object)
{
    struct arc *arc = state;
    enum place ghost = arc->place[object];

    if (part->capacity == 0)
        return;
    if (ghost == ABSENT) {
        make_room(arc, part->capacity);
        move(arc, object, RECENT);
        return;
    }
    adapt(arc, ghost, (double)part->capacity);
    if (arc->length[RECENT] + arc->length[FREQUENT] == part->capacity)
        replace(arc, ghost == FREQUENT_GHOST);
    move(arc, object, FREQUENT);
}

static void run_arc(void *state, const struct pt_sim_part *part, uint8_t *hit)
{
    struct arc *arc = state;

    arc->target = 0;
    for (int place = 0; place < PLACES; place++)
        arc->lists[place] = PT_EMPTY_LIST;
    pt_sim_replay(arc, part, hit, resident, touch, admit);
    for (int place = RECENT; place < PLACES; place++)
        while (arc->length[place] > 0)
            move_oldest(arc, (enum place)place, ABSENT);
}

const struct pt_sim_policy pt_sim_arc = {open_arc, run_arc, close_arc};
