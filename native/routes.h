/* SPDX-License-Identifier: Apache-2.0 */
/* Router records out of JSON Lines, into columns: the plain records, at the speed of the disk.
 *
 * A plain record is one object on one line with the named keys, each once, in any order: whole
 * numbers of at most nine digits, names without escapes, weights that are numbers of 0 or more.
 * Keys that nobody asked for are passed over when their value is no list and no object.  Any other
 * line stops the parser: the caller reads it with a full JSON parser, which accepts or refuses it,
 * and comes back for the next. */
#ifndef PAGETIER_ROUTES_H
#define PAGETIER_ROUTES_H

#include <stddef.h>
#include <stdint.h>

/* Slots of pt_routes_distinct. */
#define PT_ROUTES_STAMPS 65536

/* Names of the keys; NULL where records have none.  A key that is named must be in each record. */
struct pt_route_keys {
    const char *request;
    const char *phase;
    const char *step;
    const char *layer;
    const char *experts;
    const char *weights;
};

/* Where a name changes: from this record on it is text[offset..offset + length), quotes included. */
struct pt_route_name {
    uint32_t record;
    uint32_t offset;
    uint32_t length;
};

/* One entry per record, but experts and weights, which have one per read.  request and phase hold
 * the changes, the first record's name among them; they have room for as many as there are
 * records.  Columns of keys that are NULL are not touched. */
struct pt_route_columns {
    struct pt_route_name *request;
    struct pt_route_name *phase;
    int32_t *step;
    int32_t *layer;
    int32_t *width;
    int32_t *experts;
    double *weights;
    size_t record_capacity;
    size_t read_capacity;
    /* Filled by the parser. */
    size_t records;
    size_t reads;
    size_t requests;
    size_t phases;
};

/* Parses whole lines of `text` (at most 4 GiB) until a line is not plain, the columns are full or
 * the text ends; a last line needs no newline.  Returns the bytes of the lines that were taken. */
size_t pt_routes_parse(const char *text, size_t length, const struct pt_route_keys *keys,
                       struct pt_route_columns *columns);

/* Index of the first id that its record holds already, or starts[records] when there is none.
 * Record r holds experts[starts[r]..starts[r + 1]).  `stamps` are PT_ROUTES_STAMPS zeros. */
size_t pt_routes_distinct(const uint32_t *experts, const uint64_t *starts, size_t records,
                          uint32_t *stamps);

#endif
