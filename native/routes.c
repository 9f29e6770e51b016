/* SPDX-License-Identifier: Apache-2.0 */
#include "routes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Whole numbers below 10^9 fit an int32. */
#define MAX_DIGITS 9
/* Integers up to 2^53 and powers of ten up to 10^22 are exact doubles, so that one division or
 * multiplication rounds once, as strtod does (Clinger 1990). */
#define MAX_EXACT_MANTISSA (UINT64_C(1) << 53)
#define MAX_EXACT_POWER 22
#define MAX_NUMBER_CHARS 63

struct cursor {
    const char *at;
    const char *end;
};

struct span {
    const char *start;
    size_t length;
};

/* What one line said; a bit of `seen` per key. */
struct line {
    struct span request;
    struct span phase;
    int32_t step;
    int32_t layer;
    size_t width;
    size_t weights;
    unsigned seen;
};

enum key { REQUEST, PHASE, STEP, LAYER, EXPERTS, WEIGHTS, KEYS };

struct parser {
    struct span keys[KEYS];
    unsigned wanted;
    struct pt_route_columns *columns;
};

static void skip_space(struct cursor *cursor)
{
    while (cursor->at < cursor->end &&
           (*cursor->at == ' ' || *cursor->at == '\t' || *cursor->at == '\r'))
        cursor->at++;
}

static bool take(struct cursor *cursor, char expected)
{
    if (cursor->at == cursor->end || *cursor->at != expected)
        return false;
    cursor->at++;
    return true;
}

static bool is_digit(const struct cursor *cursor)
{
    return cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9';
}

/* The digits of a JSON integer: no leading zero. */
static bool take_digits(struct cursor *cursor)
{
    if (take(cursor, '0'))
        return !is_digit(cursor);
    const char *first = cursor->at;
    while (is_digit(cursor))
        cursor->at++;
    return cursor->at > first;
}

static bool take_whole(struct cursor *cursor, int32_t *value)
{
    const bool negative = take(cursor, '-');
    const char *first = cursor->at;
    int32_t sum = 0;
    while (is_digit(cursor) && cursor->at - first < MAX_DIGITS)
        sum = sum * 10 + (*cursor->at++ - '0');
    const size_t digits = (size_t)(cursor->at - first);
    if (digits == 0 || is_digit(cursor) || (digits > 1 && *first == '0'))
        return false;
    /* "1.0" and "1e2" are no whole numbers. */
    if (cursor->at < cursor->end && strchr(".eE", *cursor->at) != NULL && *cursor->at != '\0')
        return false;
    *value = negative ? -sum : sum;
    return true;
}

/* Passes over a JSON number; false where it is none. */
static bool take_number(struct cursor *cursor)
{
    take(cursor, '-');
    if (!take_digits(cursor))
        return false;
    if (take(cursor, '.')) {
        if (!is_digit(cursor))
            return false;
        while (is_digit(cursor))
            cursor->at++;
    }
    if (take(cursor, 'e') || take(cursor, 'E')) {
        if (!take(cursor, '-'))
            take(cursor, '+');
        if (!is_digit(cursor))
            return false;
        while (is_digit(cursor))
            cursor->at++;
    }
    return true;
}

static bool slow_weight(struct span number, double *value)
{
    char copy[MAX_NUMBER_CHARS + 1];
    if (number.length > MAX_NUMBER_CHARS)
        return false;
    memcpy(copy, number.start, number.length);
    copy[number.length] = '\0';
    char *end = NULL;
    *value = strtod(copy, &end);
    /* A locale with a decimal comma stops at the point; beyond the range is for the full parser. */
    return end == copy + number.length && *value <= 1e300;
}

static bool take_weight(struct cursor *cursor, double *value)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    struct span number = {cursor->at, 0};
    if (!is_digit(cursor) || !take_number(cursor))
        return false;
    number.length = (size_t)(cursor->at - number.start);
    uint64_t mantissa = 0;
    size_t after_point = 0;
    bool point = false;
    for (size_t i = 0; i < number.length; i++) {
        const char character = number.start[i];
        if (character == '.') {
            point = true;
            continue;
        }
        if (character < '0' || character > '9' || mantissa >= MAX_EXACT_MANTISSA / 10)
            return slow_weight(number, value);
        mantissa = mantissa * 10 + (uint64_t)(character - '0');
        after_point += point;
    }
    if (after_point > MAX_EXACT_POWER)
        return slow_weight(number, value);
    *value = (double)mantissa / powers[after_point];
    return true;
}

/* A string without escapes, control characters or anything beyond ASCII, quotes included. */
static bool take_string(struct cursor *cursor, struct span *text)
{
    text->start = cursor->at;
    if (!take(cursor, '"'))
        return false;
    while (cursor->at < cursor->end && *cursor->at != '"') {
        const unsigned char character = (unsigned char)*cursor->at;
        if (character < 0x20 || character >= 0x7f || character == '\\')
            return false;
        cursor->at++;
    }
    if (!take(cursor, '"'))
        return false;
    text->length = (size_t)(cursor->at - text->start);
    return true;
}

static bool take_name(struct cursor *cursor, struct span *name)
{
    if (cursor->at < cursor->end && *cursor->at == '"')
        return take_string(cursor, name);
    int32_t ignored;
    name->start = cursor->at;
    if (!take_whole(cursor, &ignored))
        return false;
    name->length = (size_t)(cursor->at - name->start);
    return true;
}

static bool take_word(struct cursor *cursor, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, word, length) != 0)
        return false;
    cursor->at += length;
    return true;
}

static bool take_scalar(struct cursor *cursor)
{
    struct span ignored;
    if (cursor->at < cursor->end && *cursor->at == '"')
        return take_string(cursor, &ignored);
    return take_word(cursor, "null") || take_word(cursor, "true") || take_word(cursor, "false") ||
           take_number(cursor);
}

/* What follows an element of a list: 1 another one, 0 the end, -1 neither. */
static int after_element(struct cursor *cursor)
{
    skip_space(cursor);
    if (take(cursor, ']'))
        return 0;
    if (!take(cursor, ','))
        return -1;
    skip_space(cursor);
    return 1;
}

static bool take_experts(struct cursor *cursor, struct pt_route_columns *columns, size_t *width)
{
    int32_t *const first = columns->experts + columns->reads;
    const size_t room = columns->read_capacity - columns->reads;
    int more = 1;
    if (!take(cursor, '['))
        return false;
    skip_space(cursor);
    for (*width = 0; more == 1; ++*width) {
        if (*width == room || !take_whole(cursor, &first[*width]))
            return false;
        more = after_element(cursor);
    }
    return more == 0;
}

static bool take_weights(struct cursor *cursor, struct pt_route_columns *columns, size_t *count)
{
    double *const first = columns->weights + columns->reads;
    const size_t room = columns->read_capacity - columns->reads;
    int more = 1;
    if (!take(cursor, '['))
        return false;
    skip_space(cursor);
    for (*count = 0; more == 1; ++*count) {
        if (*count == room || !take_weight(cursor, &first[*count]))
            return false;
        more = after_element(cursor);
    }
    return more == 0;
}

static bool take_value(struct parser *parser, struct cursor *cursor, enum key key,
                       struct line *line)
{
    switch (key) {
    case REQUEST:
        return take_name(cursor, &line->request);
    case PHASE:
        return take_name(cursor, &line->phase);
    case STEP:
        return take_whole(cursor, &line->step) && line->step >= 0;
    case LAYER:
        return take_whole(cursor, &line->layer) && line->layer >= 0;
    case EXPERTS:
        return take_experts(cursor, parser->columns, &line->width);
    case WEIGHTS:
        return take_weights(cursor, parser->columns, &line->weights);
    case KEYS:
        break;
    }
    return take_scalar(cursor);
}

static enum key key_of(const struct parser *parser, struct span name)
{
    for (unsigned key = 0; key < KEYS; key++)
        if (parser->keys[key].start != NULL && parser->keys[key].length == name.length - 2 &&
            memcmp(parser->keys[key].start, name.start + 1, name.length - 2) == 0)
            return (enum key)key;
    return KEYS;
}

static bool take_pair(struct parser *parser, struct cursor *cursor, struct line *line)
{
    struct span name;
    if (!take_string(cursor, &name))
        return false;
    const enum key key = key_of(parser, name);
    const unsigned bit = key == KEYS ? 0 : 1u << key;
    /* Of a key that comes twice JSON parsers keep one: which one is theirs to say. */
    if ((line->seen & bit) != 0)
        return false;
    line->seen |= bit;
    skip_space(cursor);
    if (!take(cursor, ':'))
        return false;
    skip_space(cursor);
    return take_value(parser, cursor, key, line);
}

static bool take_line(struct parser *parser, struct cursor *cursor, struct line *line)
{
    skip_space(cursor);
    if (!take(cursor, '{'))
        return false;
    do {
        skip_space(cursor);
        if (!take_pair(parser, cursor, line))
            return false;
        skip_space(cursor);
    } while (take(cursor, ','));
    if (!take(cursor, '}'))
        return false;
    skip_space(cursor);
    return cursor->at == cursor->end && line->seen == parser->wanted &&
           (parser->keys[WEIGHTS].start == NULL || line->weights == line->width);
}

static bool same(struct span one, struct span other)
{
    return one.length == other.length && memcmp(one.start, other.start, one.length) == 0;
}

/* Appends a change of name when there is one. */
static void note_name(struct pt_route_name *changes, size_t *count, const char *text, size_t record,
                      struct span name)
{
    if (*count > 0) {
        const struct pt_route_name *last = &changes[*count - 1];
        if (same(name, (struct span){text + last->offset, last->length}))
            return;
    }
    changes[(*count)++] = (struct pt_route_name){(uint32_t)record, (uint32_t)(name.start - text),
                                                 (uint32_t)name.length};
}

static void append(struct parser *parser, const char *text, const struct line *line)
{
    struct pt_route_columns *columns = parser->columns;
    const size_t record = columns->records;
    if (parser->keys[REQUEST].start != NULL)
        note_name(columns->request, &columns->requests, text, record, line->request);
    if (parser->keys[PHASE].start != NULL)
        note_name(columns->phase, &columns->phases, text, record, line->phase);
    if (parser->keys[STEP].start != NULL)
        columns->step[record] = line->step;
    columns->layer[record] = line->layer;
    columns->width[record] = (int32_t)line->width;
    columns->reads += line->width;
    columns->records++;
}

static struct parser parser_of(const struct pt_route_keys *keys, struct pt_route_columns *columns)
{
    const char *const names[KEYS] = {keys->request, keys->phase,   keys->step,
                                     keys->layer,   keys->experts, keys->weights};
    struct parser parser = {.wanted = 0, .columns = columns};
    for (unsigned key = 0; key < KEYS; key++) {
        if (names[key] == NULL)
            continue;
        parser.keys[key] = (struct span){names[key], strlen(names[key])};
        parser.wanted |= 1u << key;
    }
    return parser;
}

size_t pt_routes_parse(const char *text, size_t length, const struct pt_route_keys *keys,
                       struct pt_route_columns *columns)
{
    struct parser parser = parser_of(keys, columns);
    const char *const end = text + length;
    const char *start = text;
    columns->records = columns->reads = columns->requests = columns->phases = 0;
    while (start < end && columns->records < columns->record_capacity) {
        const char *newline = memchr(start, '\n', (size_t)(end - start));
        struct cursor cursor = {start, newline == NULL ? end : newline};
        struct line line = {.seen = 0};
        if (!take_line(&parser, &cursor, &line))
            break;
        append(&parser, text, &line);
        start = newline == NULL ? end : newline + 1;
    }
    return (size_t)(start - text);
}

/* Whether ids[0..count) hold `id`. */
static bool holds(const uint32_t *ids, size_t count, uint32_t id)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

size_t pt_routes_distinct(const uint32_t *experts, const uint64_t *starts, size_t records,
                          uint32_t *stamps)
{
    for (size_t record = 0; record < records; record++) {
        const uint32_t stamp = (uint32_t)record + 1;
        for (uint64_t read = starts[record]; read < starts[record + 1]; read++) {
            uint32_t *slot = &stamps[experts[read] % PT_ROUTES_STAMPS];
            /* Ids that differ by a multiple of the slots share one, and 2^32 records a stamp. */
            if (*slot == stamp &&
                holds(experts + starts[record], read - starts[record], experts[read]))
                return (size_t)read;
            *slot = stamp;
        }
    }
    return (size_t)starts[records];
}
