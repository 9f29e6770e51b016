/* SPDX-License-Identifier: Apache-2.0 */
/* Belady's stack distances (Mattson et al. 1970): the cache of n objects is the top n of one stack.
 * A used object sinks from the top; at every position the object that is used sooner stays and the
 * other sinks on, so that only those change place that are used later than all above them.  A tree
 * of greatest next uses finds them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim_bitset.h"
#include "sim_policy.h"

#define NEVER UINT32_MAX /* as a next use, and as a place */

struct stack {
    uint32_t *tree;  /* greatest next use below a node; the leaves are the stack */
    uint32_t *owner; /* of a place */
    uint32_t *place; /* of an object, or NEVER */
    uint32_t *next;  /* position of the next use by the same part, or NEVER */
    struct pt_bitset found; /* places of a group's members */
    uint32_t *access; /* of a member's object */
    uint64_t leaves;
    uint64_t depth;
};

static void close_stack(struct stack *stack)
{
    free(stack->tree);
    free(stack->owner);
    free(stack->place);
    free(stack->next);
    free(stack->access);
    pt_bitset_close(&stack->found);
}

static int open_stack(struct stack *stack, const struct pt_sim_stream *stream)
{
    uint64_t leaves = 1;

    while (leaves < stream->num_objects)
        leaves *= 2;
    *stack = (struct stack){
        .tree = calloc(2 * leaves, sizeof(*stack->tree)),
        .owner = malloc(leaves * sizeof(*stack->owner)),
        .place = malloc(leaves * sizeof(*stack->place)),
        .next = malloc((stream->num_accesses + 1) * sizeof(*stack->next)),
        .access = malloc(leaves * sizeof(*stack->access)),
        .leaves = leaves,
    };
    if (stack->tree != NULL && stack->owner != NULL && stack->place != NULL &&
        stack->next != NULL && stack->access != NULL && pt_bitset_open(&stack->found, leaves) == 0)
        return 0;
    close_stack(stack);
    return -ENOMEM;
}

static void find_next(struct stack *stack, const uint32_t *objects, uint64_t begin, uint64_t end)
{
    for (uint64_t i = begin; i < end; i++)
        stack->place[objects[i]] = NEVER;
    for (uint64_t i = end; i-- > begin;) {
        stack->next[i] = stack->place[objects[i]];
        stack->place[objects[i]] = (uint32_t)i;
    }
    for (uint64_t i = begin; i < end; i++)
        stack->place[objects[i]] = NEVER;
}

/* The first place from `from` on whose object is used after `use`; `leaves` when there is none. */
static uint64_t first_later(const struct stack *stack, uint64_t from, uint32_t use)
{
    uint64_t node = from + stack->leaves;

    do {
        while (node % 2 == 0)
            node /= 2;
        if (stack->tree[node] > use) {
            while (node < stack->leaves)
                node = 2 * node + (stack->tree[2 * node] > use ? 0 : 1);
            return node - stack->leaves;
        }
        node++;
    } while ((node & (node - 1)) != 0);
    return stack->leaves;
}

static void put(struct stack *stack, uint64_t place, uint32_t object, uint32_t use)
{
    uint64_t node = place + stack->leaves;

    stack->owner[place] = object;
    stack->place[object] = (uint32_t)place;
    stack->tree[node] = use;
    while ((node /= 2) > 0) {
        uint32_t left = stack->tree[2 * node], right = stack->tree[2 * node + 1];

        stack->tree[node] = left > right ? left : right;
    }
}

static void use(struct stack *stack, uint32_t object, uint32_t next)
{
    uint64_t end = stack->place[object] == NEVER ? stack->depth++ : stack->place[object];
    uint64_t place = 0;

    while (place < end && (place = first_later(stack, place, next)) < end) {
        uint32_t sinking = stack->owner[place], later = stack->tree[stack->leaves + place];

        put(stack, place++, object, next);
        object = sinking;
        next = later;
    }
    put(stack, end, object, next);
}

static void empty(struct stack *stack)
{
    uint64_t first = stack->leaves, last = stack->leaves + stack->depth - 1;

    for (; stack->depth > 0 && first > 0; first /= 2, last /= 2)
        memset(&stack->tree[first], 0, (last - first + 1) * sizeof(*stack->tree));
    stack->depth = 0;
}

/* A cache of n first learns the next uses of the members it holds, and then takes in the others: so
 * members sink in the order of their places, which none changes for those that wait. */
static void use_group(struct stack *stack, const uint32_t *objects, uint64_t begin, uint64_t end)
{
    for (uint64_t i = begin; i < end; i++) {
        stack->access[objects[i]] = (uint32_t)i;
        if (stack->place[objects[i]] != NEVER)
            pt_bitset_add(&stack->found, stack->place[objects[i]]);
    }
    while (!pt_bitset_empty(&stack->found)) {
        uint64_t place = pt_bitset_least(&stack->found);
        uint32_t object = stack->owner[place];

        pt_bitset_remove(&stack->found, place);
        use(stack, object, stack->next[stack->access[object]]);
    }
}

static void replay(struct stack *stack, const struct pt_sim_stream *stream, uint64_t part,
                   uint32_t *distance)
{
    uint64_t first = stream->part_start[part], last = stream->part_start[part + 1];

    find_next(stack, stream->objects, pt_sim_access(stream, first), pt_sim_access(stream, last));
    for (uint64_t group = first; group < last; group++) {
        uint64_t begin = pt_sim_access(stream, group), end = pt_sim_access(stream, group + 1);

        for (uint64_t i = begin; i < end; i++)
            distance[i] = stack->place[stream->objects[i]] + 1; /* NEVER + 1 = 0 */
        use_group(stack, stream->objects, begin, end);
        for (uint64_t i = begin; i < end; i++)
            if (distance[i] == 0)
                use(stack, stream->objects[i], stack->next[i]);
    }
    empty(stack);
}

int pt_sim_belady_distances(const struct pt_sim_stream *stream, uint32_t *distance)
{
    struct stack stack;
    int result = pt_sim_check(stream);

    if (result == 0)
        result = open_stack(&stack, stream);
    if (result != 0)
        return result;
    for (uint64_t part = 0; part < stream->num_parts; part++)
        replay(&stack, stream, part, distance);
    close_stack(&stack);
    return 0;
}
