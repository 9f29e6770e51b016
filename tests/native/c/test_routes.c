/* SPDX-License-Identifier: Apache-2.0 */
/* The parser on texts that end exactly where their memory ends, for the sanitizers. */
#include "routes.h"

#include <string.h>

#include "fixture.h"

enum { RECORD_ROOM = 4, READ_ROOM = 10 };

static const struct pt_route_keys keys = {"req", NULL, "step", "layer", "experts", "weights"};

static const char plain[] =
    "{\"req\":\"a\",\"step\":3,\"layer\":7,\"experts\":[1,20],\"weights\":[0.75,2.5e-1]}\n";

static struct pt_route_name requests[RECORD_ROOM];
static int32_t step[RECORD_ROOM], layer[RECORD_ROOM], width[RECORD_ROOM];
static int32_t experts[READ_ROOM];
static double weights[READ_ROOM];
static struct pt_route_columns columns = {
    .request = requests,
    .step = step,
    .layer = layer,
    .width = width,
    .experts = experts,
    .weights = weights,
    .record_capacity = RECORD_ROOM,
    .read_capacity = READ_ROOM,
};

/* Parses a copy of its own size, so that a read beyond it is a read beyond the block. */
static size_t parse(const char *text, size_t length)
{
    char *copy = malloc(length ? length : 1);
    CHECK(copy != NULL);
    memcpy(copy, text, length);
    const size_t taken = pt_routes_parse(copy, length, &keys, &columns);
    free(copy);
    return taken;
}

static void a_plain_record_is_taken(void)
{
    const size_t length = strlen(plain);
    CHECK(parse(plain, length) == length);
    CHECK(columns.records == 1 && columns.reads == 2 && columns.requests == 1);
    CHECK(step[0] == 3 && layer[0] == 7 && width[0] == 2);
    CHECK(experts[0] == 1 && experts[1] == 20);
    CHECK(weights[0] == 0.75 && weights[1] == 0.25);
    CHECK(requests[0].record == 0 && memcmp(plain + requests[0].offset, "\"a\"", 3) == 0);
}

static void every_cut_is_left_to_the_caller(void)
{
    const size_t length = strlen(plain);
    for (size_t cut = 0; cut + 1 < length; cut++)
        CHECK(parse(plain, cut) == 0 && columns.records == 0);
    /* Without its newline the last line is whole. */
    CHECK(parse(plain, length - 1) == length - 1 && columns.records == 1);
}

static void every_byte_may_be_any(void)
{
    char text[sizeof plain];
    for (size_t at = 0; at < strlen(plain); at++)
        for (unsigned byte = 0; byte < 256; byte++) {
            memcpy(text, plain, sizeof plain);
            text[at] = (char)byte;
            CHECK(parse(text, strlen(plain)) <= strlen(plain));
        }
}

static void full_columns_end_a_parse(void)
{
    char text[(RECORD_ROOM + 2) * sizeof plain];
    size_t length = 0;
    for (int i = 0; i < RECORD_ROOM + 2; i++)
        length += (size_t)sprintf(text + length, "%s", plain);
    CHECK(parse(text, length) == RECORD_ROOM * strlen(plain));
    CHECK(columns.records == RECORD_ROOM && columns.reads == 2 * RECORD_ROOM);
    CHECK(columns.requests == 1);

    static const char wide[] = "{\"req\":1,\"step\":0,\"layer\":0,\"experts\":[0,1,2,3,4,5,6,7,8,9,10],"
                               "\"weights\":[1,1,1,1,1,1,1,1,1,1,1]}\n";
    CHECK(parse(wide, strlen(wide)) == 0);
}

static void repeated_ids_are_found(void)
{
    static uint32_t stamps[PT_ROUTES_STAMPS];
    const uint32_t ids[] = {1, 2, 3, 2, 1, PT_ROUTES_STAMPS + 1, UINT32_MAX, UINT32_MAX};
    const uint64_t starts[] = {0, 3, 6, 8};
    CHECK(pt_routes_distinct(ids, starts, 2, stamps) == 6);
    memset(stamps, 0, sizeof stamps);
    CHECK(pt_routes_distinct(ids, starts, 3, stamps) == 7);
    CHECK(pt_routes_distinct(ids, starts, 0, stamps) == 0);
    CHECK(pt_routes_distinct(ids, starts + 1, 0, stamps) == 3);
}

int main(void)
{
    a_plain_record_is_taken();
    every_cut_is_left_to_the_caller();
    every_byte_may_be_any();
    full_columns_end_a_parse();
    repeated_ids_are_found();
    puts("5 tests passed");
    return 0;
}
