/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator against a cache that is searched from end to end, and against itself: parts replayed
 * together and alone, stack distances and replays at every capacity.  Usage: test_sim [DIRECTORY];
 * it needs no files. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { OBJECTS = 40, GROUPS = 300, WIDTH = 6, PARTS = 3, POLICIES = 10 };
enum { ACCESSES = GROUPS * WIDTH };

static uint32_t state = 20261129;

static uint32_t random_below(uint32_t bound)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % bound;
}

struct fixture {
    uint32_t objects[ACCESSES];
    uint64_t group_start[GROUPS + 1];
    uint32_t group_cycle[ACCESSES];
    uint64_t part_start[PARTS + 1];
    uint64_t capacity[PARTS];
    uint64_t size[OBJECTS];
    struct pt_sim_stream stream;
};

/* Distinct members in ascending order, some groups empty. */
static void fill(struct fixture *fixture, bool events, bool sized)
{
    uint64_t accesses = 0;

    for (uint64_t group = 0; group < GROUPS; group++) {
        uint64_t members = random_below(WIDTH + 1);
        uint32_t object = 0;

        fixture->group_start[group] = accesses;
        while (members-- > 0 && (object += 1 + random_below(OBJECTS / 3)) <= OBJECTS)
            fixture->objects[accesses++] = object - 1;
    }
    fixture->group_start[GROUPS] = accesses;
    for (uint64_t i = 0; i < ACCESSES; i++)
        fixture->group_cycle[i] = (uint32_t)i / 7;
    for (uint32_t object = 0; object < OBJECTS; object++)
        fixture->size[object] = 1 + random_below(9);
    for (uint64_t part = 0; part < PARTS; part++) {
        fixture->part_start[part] = (events ? GROUPS : accesses) * part / PARTS;
        fixture->capacity[part] = random_below(sized ? 60 : 20);
    }
    fixture->part_start[PARTS] = events ? GROUPS : accesses;
    fixture->stream = (struct pt_sim_stream){
        .objects = fixture->objects,
        .group_start = events ? fixture->group_start : NULL,
        .group_cycle = fixture->group_cycle,
        .part_start = fixture->part_start,
        .capacity = fixture->capacity,
        .object_size = sized ? fixture->size : NULL,
        .num_accesses = accesses,
        .num_parts = PARTS,
        .num_objects = OBJECTS,
    };
}

/* ---- LRU by looking at every resident ---- */

static void plain_lru(const struct pt_sim_stream *stream, uint8_t *hit)
{
    for (uint64_t part = 0; part < stream->num_parts; part++) {
        uint64_t last[OBJECTS] = {0}, used = 0;

        for (uint64_t group = stream->part_start[part]; group < stream->part_start[part + 1];
             group++) {
            uint64_t begin = stream->group_start != NULL ? stream->group_start[group] : group;
            uint64_t end = stream->group_start != NULL ? stream->group_start[group + 1] : group + 1;

            for (uint64_t i = begin; i < end; i++)
                hit[i] = last[stream->objects[i]] != 0;
            for (uint64_t i = begin; i < end; i++) {
                uint64_t size = stream->object_size ? stream->object_size[stream->objects[i]] : 1;

                if (size > stream->capacity[part])
                    continue;
                used += last[stream->objects[i]] == 0 ? size : 0;
                last[stream->objects[i]] = i + 1;
            }
            while (used > stream->capacity[part]) {
                uint32_t victim = OBJECTS;

                for (uint32_t object = 0; object < OBJECTS; object++)
                    if (last[object] != 0 && (victim == OBJECTS || last[object] < last[victim]))
                        victim = object;
                last[victim] = 0;
                used -= stream->object_size ? stream->object_size[victim] : 1;
            }
        }
    }
}

static void lru_equals_a_search(void)
{
    for (int round = 0; round < 200; round++) {
        struct fixture fixture;
        uint8_t found[ACCESSES], wanted[ACCESSES];

        fill(&fixture, round % 2, round / 2 % 2);
        plain_lru(&fixture.stream, wanted);
        CHECK(pt_sim_run(PT_SIM_LRU, &fixture.stream, found) == 0);
        CHECK(memcmp(found, wanted, fixture.stream.num_accesses) == 0);
        CHECK(pt_sim_run(PT_SIM_LEAST_STALE, &fixture.stream, found) == 0);
        CHECK(memcmp(found, wanted, fixture.stream.num_accesses) == 0);
    }
}

/* ---- A part leaves nothing behind for the next ---- */

static void parts_are_replayed_alone(void)
{
    for (int round = 0; round < 80; round++) {
        struct fixture fixture;
        uint8_t together[ACCESSES], alone[ACCESSES];

        fill(&fixture, round % 2, round / 2 % 2);
        for (uint32_t policy = 0; policy < POLICIES; policy++) {
            if (policy == PT_SIM_ARC && fixture.stream.object_size != NULL)
                continue;
            CHECK(pt_sim_run(policy, &fixture.stream, together) == 0);
            for (uint64_t part = 0; part < PARTS; part++) {
                struct pt_sim_stream one = fixture.stream;
                uint64_t only[PARTS] = {0};

                only[part] = fixture.capacity[part];
                one.capacity = only;
                CHECK(pt_sim_run(policy, &one, alone) == 0);
                for (uint64_t group = one.part_start[part]; group < one.part_start[part + 1];
                     group++) {
                    uint64_t begin = one.group_start != NULL ? one.group_start[group] : group;
                    uint64_t end = one.group_start != NULL ? one.group_start[group + 1] : group + 1;

                    CHECK(memcmp(&together[begin], &alone[begin], end - begin) == 0);
                }
            }
        }
    }
}

/* ---- Stack distances ---- */

typedef int distances(const struct pt_sim_stream *stream, uint32_t *distance);

static void distances_give_every_capacity(distances *find, uint32_t policy)
{
    for (int round = 0; round < 60; round++) {
        struct fixture fixture;
        uint8_t hit[ACCESSES];
        uint32_t distance[ACCESSES];

        fill(&fixture, round % 2, false);
        CHECK(find(&fixture.stream, distance) == 0);
        for (uint64_t capacity = 0; capacity <= OBJECTS; capacity++) {
            for (uint64_t part = 0; part < PARTS; part++)
                fixture.capacity[part] = capacity;
            CHECK(pt_sim_run(policy, &fixture.stream, hit) == 0);
            for (uint64_t i = 0; i < fixture.stream.num_accesses; i++)
                CHECK(hit[i] == (distance[i] != 0 && distance[i] <= capacity));
        }
    }
}

/* More uses than slots: the owned ones are moved together many times. */
static void long_streams_keep_their_distances(void)
{
    enum { LONG = 200000, FEW = 9 };
    uint32_t *objects = malloc(LONG * sizeof(*objects)), *distance = malloc(LONG * sizeof(*distance));
    uint8_t *hit = malloc(LONG);
    uint64_t part_start[2] = {0, LONG}, capacity = 4;
    struct pt_sim_stream stream = {.objects = objects,
                                   .part_start = part_start,
                                   .capacity = &capacity,
                                   .num_accesses = LONG,
                                   .num_parts = 1,
                                   .num_objects = FEW};

    CHECK(objects != NULL && distance != NULL && hit != NULL);
    for (uint64_t i = 0; i < LONG; i++)
        objects[i] = random_below(FEW);
    CHECK(pt_sim_lru_distances(&stream, distance) == 0);
    CHECK(pt_sim_run(PT_SIM_LRU, &stream, hit) == 0);
    for (uint64_t i = 0; i < LONG; i++)
        CHECK(hit[i] == (distance[i] != 0 && distance[i] <= capacity));
    free(objects);
    free(distance);
    free(hit);
}

/* ---- Inputs from the edge, and beyond ---- */

static void edges_are_right(void)
{
    for (uint32_t policy = 0; policy < POLICIES; policy++) {
        uint32_t same[5] = {0, 0, 0, 0, 0};
        uint64_t part_start[2] = {0, 5}, capacity = 1;
        uint8_t hit[5];
        struct pt_sim_stream stream = {.objects = same,
                                       .part_start = part_start,
                                       .capacity = &capacity,
                                       .num_accesses = 5,
                                       .num_parts = 1,
                                       .num_objects = 1};

        CHECK(pt_sim_run(policy, &stream, hit) == 0);
        CHECK(hit[0] == 0 && hit[1] + hit[2] + hit[3] + hit[4] == 4);
        capacity = UINT64_MAX;
        CHECK(pt_sim_run(policy, &stream, hit) == 0 && hit[0] == 0 && hit[4] == 1);
        capacity = 0;
        CHECK(pt_sim_run(policy, &stream, hit) == 0 && hit[4] == 0);
        part_start[1] = stream.num_accesses = 0;
        CHECK(pt_sim_run(policy, &stream, hit) == 0);
        stream.num_parts = 0;
        CHECK(pt_sim_run(policy, &stream, hit) == 0);
    }
}

static void wrong_streams_are_refused(void)
{
    struct fixture fixture;
    uint8_t hit[ACCESSES];
    uint32_t distance[ACCESSES];

    fill(&fixture, true, true);
    CHECK(pt_sim_run(POLICIES, &fixture.stream, hit) == -EINVAL);
    CHECK(pt_sim_run(PT_SIM_ARC, &fixture.stream, hit) == -EINVAL);
    fixture.size[3] = 0;
    CHECK(pt_sim_run(PT_SIM_LRU, &fixture.stream, hit) == -EINVAL);
    fixture.size[3] = UINT64_MAX;
    CHECK(pt_sim_run(PT_SIM_LRU, &fixture.stream, hit) == -EINVAL);
    fill(&fixture, true, false);
    fixture.part_start[1] = fixture.part_start[2] + 1;
    CHECK(pt_sim_run(PT_SIM_LRU, &fixture.stream, hit) == -EINVAL);
    fill(&fixture, true, false);
    fixture.group_start[7] = UINT64_MAX;
    CHECK(pt_sim_lru_distances(&fixture.stream, distance) == -EINVAL);
    fill(&fixture, false, false);
    fixture.objects[5] = OBJECTS;
    CHECK(pt_sim_run(PT_SIM_BELADY, &fixture.stream, hit) == -EINVAL);
    fill(&fixture, true, false);
    fixture.group_start[0] = fixture.group_start[1] = 0;
    fixture.group_start[2] = 2;
    fixture.objects[0] = fixture.objects[1];
    CHECK(pt_sim_belady_distances(&fixture.stream, distance) == -EINVAL);
}

int main(void)
{
    lru_equals_a_search();
    parts_are_replayed_alone();
    distances_give_every_capacity(pt_sim_lru_distances, PT_SIM_LRU);
    distances_give_every_capacity(pt_sim_belady_distances, PT_SIM_BELADY);
    long_streams_keep_their_distances();
    edges_are_right();
    wrong_streams_are_refused();
    puts("7 tests passed");
    return 0;
}
