/* SPDX-License-Identifier: Apache-2.0 */
/* A small pool on disk, a plan over it, and system calls that fail on demand: the linker sends those
 * of the core through here (-Wl,--wrap=pread and so on). */
#ifndef PAGETIER_FIXTURE_H
#define PAGETIER_FIXTURE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "histogram.h"
#include "reader.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { EXPERTS = 12, EXPERT_BYTES = 70001, RECORDS = 96, WIDTH = 4, ITERATIONS = 12, SEED = 99 };
enum { READS = RECORDS * WIDTH };

/* ---- System calls that fail on demand ---- */

enum injection { NONE, SHORT_READS, INTERRUPTED, DEVICE_ERROR, HELD };

extern _Atomic int injection; /* of pread and preadv2 */
extern _Atomic unsigned calls;
extern _Atomic unsigned held_call; /* the one that HELD holds */
extern _Atomic int release_held;
extern _Atomic int locks_left;   /* calls of mlock before it fails with ENOMEM; -1: it does not */
extern _Atomic int hints_left;   /* the same of POSIX_FADV_WILLNEED, with EIO */
extern _Atomic unsigned hints_given;
extern _Atomic int hold_hints;     /* WILLNEED does not return while set */
extern _Atomic int hinting_class;  /* of scheduling: that of the thread that gave the last one */
extern _Atomic int refuse_direct;  /* open with O_DIRECT fails with EINVAL */
extern _Atomic long clock_step_ns; /* from one reading of the clock to the next; -1: the real one */
extern _Atomic unsigned naps;      /* waits for a futex that end by themselves */
extern _Atomic unsigned single_wakes; /* by futex, of one thread */

ssize_t __real_pread(int fd, void *buffer, size_t length, off_t offset);

void pause_ms(long ms);

/* ---- A pool of one file per expert, and a plan over it ---- */

struct fixture {
    char directory[512];
    char paths_text[EXPERTS][600];
    const char *paths[EXPERTS];
    struct pt_extent extents[2 * EXPERTS];
    uint64_t expert_start[EXPERTS + 1];
    struct pt_pool pool;
    struct pt_options options;
    uint32_t experts[READS];
    uint64_t record_start[RECORDS + 1];
    uint64_t iteration_start[ITERATIONS + 1];
    struct pt_plan plan;
    uint64_t hint_start[RECORDS + 1];
    struct pt_hints hints; /* of each record, the experts of the next one */
    uint64_t ends[ITERATIONS];
    uint64_t sums[PT_COLUMNS][ITERATIONS];
    uint64_t histogram[PT_HISTOGRAM_BUCKETS];
    struct pt_pass pass;
    struct pt_fault fault;
    struct pt_arena *arena;
    struct pt_reader *reader;
};

struct fixture *setup(const char *directory);
void open_reader(struct fixture *f);
/* With the hints, if the reader was opened for them. */
int replay(struct fixture *f);
void close_reader(struct fixture *f);
void teardown(struct fixture *f);
void check_complete(const struct fixture *f);
uint64_t sum(const uint64_t *column);
void evict(const struct fixture *f);
/* Pages of the whole pool in the page cache, by mincore. */
uint64_t resident_pages(const struct fixture *f);

/* ---- The program ---- */

struct test {
    const char *name;
    void (*run)(const char *directory);
};

#define TEST(name) {#name, test_##name}

int run_tests(const struct test *tests, size_t count, int argc, char **argv);

#endif
