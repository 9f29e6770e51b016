/* SPDX-License-Identifier: Apache-2.0 */
/* The C core against faults that no file system produces on demand (see fixture.h).
 * Usage: test_reader DIRECTORY, an empty one for its files. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "digest.h"
#include "fixture.h"
#include "histogram.h"
#include "residency.h"
#include "schedule.h"
#include "sigbus.h"

/* ---- Content ---- */

static unsigned char expected_byte(uint64_t seed, uint32_t expert, uint64_t offset)
{
    const uint64_t gamma = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = seed + gamma;

    for (int round = 0; round < 3; round++) {
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        if (round == 0)
            z += gamma * ((uint64_t)expert + 1);
        if (round == 1)
            z += gamma * (offset / 8 + 1);
    }
    return (unsigned char)(z >> (8 * (offset % 8)));
}

static void test_content_matches_its_definition(const char *directory)
{
    unsigned char room[2048];

    (void)directory;
    for (uint64_t offset = 0; offset < 20; offset++)
        for (size_t length = 0; length < 1200; length += length < 40 ? 1 : 131) {
            unsigned char *buffer = room + offset % 9;

            pt_content_fill(buffer, length, 5, 7, offset);
            for (size_t i = 0; i < length; i++)
                CHECK(buffer[i] == expected_byte(5, 7, offset + i));
            CHECK(pt_content_mismatch(buffer, length, 5, 7, offset) == length);
            if (length == 0)
                continue;
            size_t wrong = length * 2 / 3;
            buffer[wrong] ^= 0x10;
            CHECK(pt_content_mismatch(buffer, length, 5, 7, offset) == wrong);
        }
}

static void test_cancelled_write(const char *directory)
{
    char path[600];
    uint64_t written = 0;
    int cancel = 1;

    snprintf(path, sizeof path, "%s/cancelled", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK(pt_content_write(fd, 0, 100, 1, 1, &written, &cancel) == -ECANCELED);
    CHECK(written == 0);
    close(fd);
    unlink(path);
}

/* ---- Histogram ---- */

static void test_histogram_buckets(const char *directory)
{
    uint32_t last = 0;

    (void)directory;
    for (uint64_t value = 0; value < 100000; value++) {
        uint32_t bucket = pt_histogram_bucket(value);

        CHECK(bucket == last || bucket == last + 1);
        last = bucket;
    }
    for (uint64_t value = 64; value < UINT64_MAX / 33; value += value / 3) {
        CHECK(pt_histogram_bucket(value + value / 32 + 1) > pt_histogram_bucket(value));
        CHECK(pt_histogram_bucket(value) < PT_HISTOGRAM_BUCKETS);
    }
    CHECK(pt_histogram_bucket(UINT64_MAX) == PT_HISTOGRAM_BUCKETS - 1);
}

/* ---- Schedule ---- */

enum { GROUPS = 400 };

struct race {
    struct pt_schedule schedule;
    uint64_t group_start[GROUPS + 1];
    _Atomic uint8_t taken[GROUPS * 4];
    _Atomic uint64_t completed;
};

static void *run_race(void *argument)
{
    struct race *race = argument;
    struct pt_turn turn;

    while (pt_schedule_take(&race->schedule, &turn)) {
        CHECK(turn.read >= race->group_start[turn.group]);
        CHECK(turn.read < race->group_start[turn.group + 1]);
        CHECK(atomic_fetch_add(&race->taken[turn.read], 1) == 0);
        /* All reads of the groups before, and none of the groups behind. */
        CHECK(atomic_load(&race->completed) >= race->group_start[turn.group]);
        CHECK(atomic_load(&race->completed) < race->group_start[turn.group + 1]);
        if (turn.read % 5 == 0)
            sched_yield();
        atomic_fetch_add(&race->completed, 1);
        pt_schedule_complete(&race->schedule, &turn);
    }
    return NULL;
}

static void race_with(uint32_t threads, uint32_t pattern)
{
    struct race *race = aligned_alloc(PT_APART, (sizeof *race + PT_APART - 1) / PT_APART * PT_APART);
    pthread_t thread[16];

    CHECK(race);
    memset(race, 0, sizeof *race);
    for (uint32_t g = 0; g < GROUPS; g++) {
        /* Patterns: steady, ragged, and runs of more than 32 empty groups at both ends. */
        uint32_t width = pattern == 0 ? 3 : pattern == 1 ? g * 7 % 5 : g % 90 < 40 ? 0 : 2;

        race->group_start[g + 1] = race->group_start[g] + width;
    }
    CHECK(pt_schedule_init(&race->schedule, race->group_start, GROUPS) == 0);
    for (uint32_t t = 0; t < threads; t++)
        CHECK(pthread_create(&thread[t], NULL, run_race, race) == 0);
    pt_schedule_start(&race->schedule);
    for (uint32_t t = 0; t < threads; t++)
        pthread_join(thread[t], NULL);
    CHECK(atomic_load(&race->completed) == race->group_start[GROUPS]);
    free(race);
}

static void test_groups_open_in_order(const char *directory)
{
    (void)directory;
    for (uint32_t pattern = 0; pattern < 3; pattern++)
        for (uint32_t threads = 1; threads <= 16; threads += 5)
            race_with(threads, pattern);
}

static void test_schedule_without_reads(const char *directory)
{
    static const uint64_t nothing[4] = {0, 0, 0, 0};
    struct pt_schedule schedule;
    struct pt_turn turn;

    (void)directory;
    for (uint64_t groups = 0; groups < 4; groups++) {
        CHECK(pt_schedule_init(&schedule, nothing, groups) == 0);
        pt_schedule_start(&schedule);
        CHECK(!pt_schedule_take(&schedule, &turn));
    }
    CHECK(pt_schedule_init(&schedule, nothing, UINT32_MAX) == -EOVERFLOW);
}

static void *wait_turn(void *argument)
{
    struct pt_turn turn;

    CHECK(!pt_schedule_take(argument, &turn));
    return NULL;
}

static void test_stop_wakes_those_who_wait(const char *directory)
{
    static const uint64_t groups[4] = {0, 1, 2, 3};
    struct pt_schedule schedule;
    struct pt_turn turn;
    pthread_t waiting[2];

    (void)directory;
    CHECK(pt_schedule_init(&schedule, groups, 3) == 0);
    pt_schedule_start(&schedule);
    CHECK(pt_schedule_take(&schedule, &turn));
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&waiting[i], NULL, wait_turn, &schedule) == 0);
    pause_ms(20);
    pt_schedule_stop(&schedule);
    for (int i = 0; i < 2; i++)
        pthread_join(waiting[i], NULL);
    /* A read that was under way completes without opening the next group. */
    pt_schedule_complete(&schedule, &turn);
    CHECK(!pt_schedule_take(&schedule, &turn));
}

/* ---- Reader ---- */

static void replay_all_ways(struct fixture *f)
{
    for (uint32_t barrier = PT_BARRIER_RECORD; barrier <= PT_BARRIER_NONE; barrier++)
        for (uint32_t kept = 0; kept <= 4 * EXPERTS; kept += 2 * EXPERTS) {
            f->options.barrier = barrier;
            f->options.max_descriptors = kept;
            open_reader(f);
            int result = replay(f);
            if (result < 0)
                fprintf(stderr, "%s: %s, file %u, expert %u, offset %llu\n", f->fault.call,
                        strerror(-result), f->fault.file, f->fault.expert,
                        (unsigned long long)f->fault.offset);
            CHECK(result == 0);
            check_complete(f);
            pt_reader_close(f->reader);
            f->reader = NULL;
        }
}

static void test_replay(const char *directory)
{
    struct fixture *f = setup(directory);

    for (uint32_t advice = PT_ADVICE_DEFAULT; advice <= PT_ADVICE_SEQUENTIAL; advice++) {
        f->options.advice = advice;
        f->options.mode = PT_PREAD;
        replay_all_ways(f);
        f->options.mode = PT_MMAP;
        replay_all_ways(f);
    }
    teardown(f);
}

static void test_short_reads(const char *directory)
{
    struct fixture *f = setup(directory);

    atomic_store(&injection, SHORT_READS);
    replay_all_ways(f);
    CHECK(atomic_load(&calls) > READS * 9 * 2);
    teardown(f);
}

static void test_interrupted_reads(const char *directory)
{
    struct fixture *f = setup(directory);

    atomic_store(&injection, INTERRUPTED);
    replay_all_ways(f);
    teardown(f);
}

static void test_device_error(const char *directory)
{
    struct fixture *f = setup(directory);

    for (uint32_t barrier = PT_BARRIER_RECORD; barrier <= PT_BARRIER_NONE; barrier++) {
        f->options.barrier = barrier;
        open_reader(f);
        atomic_store(&calls, 0);
        atomic_store(&injection, DEVICE_ERROR);
        CHECK(replay(f) == -EIO);
        CHECK(strcmp(f->fault.call, "pread") == 0);
        CHECK(f->fault.file == f->fault.expert && f->fault.file < EXPERTS);
        CHECK(f->fault.offset == 3 || f->fault.offset == 3 + 4099 + 1000 * f->fault.file);
        /* The reader is as good as before. */
        atomic_store(&injection, NONE);
        CHECK(replay(f) == 0);
        check_complete(f);
        close_reader(f);
    }
    teardown(f);
}

static void test_truncated_file(const char *directory)
{
    for (uint32_t mode = PT_PREAD; mode <= PT_MMAP; mode++) {
        struct fixture *f = setup(directory);

        f->options.mode = mode;
        open_reader(f);
        CHECK(truncate(f->paths[5], 2 * (off_t)pt_page_bytes() > 9000 ? 100 : 8192) == 0);
        CHECK(replay(f) == -ENODATA);
        CHECK(f->fault.file == 5 && f->fault.expert == 5);
        CHECK(strcmp(f->fault.call, mode == PT_PREAD ? "pread" : "memcpy") == 0);
        CHECK(f->fault.offset >= 100 && f->fault.offset < 3 + EXPERT_BYTES);
        teardown(f);
    }
}

/* The rest of the last page reads as zeros through a mapping. */
static void test_file_truncated_within_a_page(const char *directory)
{
    for (uint32_t mode = PT_PREAD; mode <= PT_MMAP; mode++) {
        struct fixture *f = setup(directory);

        f->options.mode = mode;
        f->pass.verify_every = 0;
        open_reader(f);
        CHECK(truncate(f->paths[5], 3 + EXPERT_BYTES - 1) == 0);
        CHECK(replay(f) == -ENODATA);
        CHECK(f->fault.file == 5 && f->fault.offset == 3 + EXPERT_BYTES - 1);
        close_reader(f);
        CHECK(pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault) == -ENODATA);
        CHECK(f->fault.file == 5 && strcmp(f->fault.call, "fstat") == 0);
        teardown(f);
    }
}

static void test_missing_file(const char *directory)
{
    struct fixture *f = setup(directory);

    f->options.max_descriptors = 4 * 4;
    open_reader(f);
    unlink(f->paths[7]);
    CHECK(replay(f) == -ENOENT);
    CHECK(f->fault.file == 7 && f->fault.expert == 7 && strcmp(f->fault.call, "open") == 0);
    close_reader(f);
    CHECK(pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault) == -ENOENT);
    CHECK(f->fault.file == 7 && f->fault.expert == PT_NONE);
    CHECK(symlink(f->paths[6], f->paths[7]) == 0);
    CHECK(pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault) == -ELOOP);
    unlink(f->paths[7]);
    CHECK(mkfifo(f->paths[7], 0600) == 0);
    CHECK(pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault) == -EMEDIUMTYPE);
    teardown(f);
}

static void test_wrong_content(const char *directory)
{
    struct fixture *f = setup(directory);
    off_t wrong = 3 + 4099 + 1000 * 9 + 17;
    unsigned char byte;

    int fd = open(f->paths[9], O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && __real_pread(fd, &byte, 1, wrong) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, wrong) == 1);
    close(fd);
    open_reader(f);
    CHECK(replay(f) == -EILSEQ);
    CHECK(f->fault.expert == 9 && f->fault.file == 9 && f->fault.offset == (uint64_t)wrong);
    CHECK(strcmp(f->fault.call, "verify") == 0);
    f->pass.verify_every = 0;
    CHECK(replay(f) == 0);
    CHECK(f->pass.verified_reads == 0);
    teardown(f);
}

static void test_content_by_digests(const char *directory)
{
    struct fixture *f = setup(directory);
    unsigned char *content = malloc(EXPERT_BYTES);
    uint64_t digests[EXPERTS];

    CHECK(content);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        pt_content_fill(content, EXPERT_BYTES, SEED, e, 0);
        digests[e] = pt_digest(content, EXPERT_BYTES, 0);
    }
    free(content);
    f->pass.content_seed = SEED + 1;
    f->pass.expert_digest = digests;
    open_reader(f);
    CHECK(replay(f) == 0);
    check_complete(f);
    digests[9] ^= 1;
    CHECK(replay(f) == -EILSEQ);
    CHECK(f->fault.expert == 9 && f->fault.file == 9);
    CHECK(f->fault.offset == f->extents[f->expert_start[9]].offset);
    CHECK(strcmp(f->fault.call, "verify") == 0);
    teardown(f);
}

static void test_identities(const char *directory)
{
    struct fixture *f = setup(directory);
    struct pt_identity identities[EXPERTS];

    for (uint32_t e = 0; e < EXPERTS; e++) {
        struct stat status;

        CHECK(stat(f->paths[e], &status) == 0);
        identities[e] = (struct pt_identity){status.st_dev, status.st_ino};
    }
    f->pool.identities = identities;
    open_reader(f);
    CHECK(replay(f) == 0);
    close_reader(f);
    for (uint32_t mark = 0; mark < 2; mark++) {
        uint64_t *wrong = mark ? &identities[7].inode : &identities[7].device;

        ++*wrong;
        CHECK(pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault) == -ESTALE);
        CHECK(f->fault.file == 7 && strcmp(f->fault.call, "open") == 0);
        --*wrong;
    }
    teardown(f);
}

static void *replay_in_thread(void *argument)
{
    CHECK(replay(argument) == -ECANCELED);
    return NULL;
}

/* One read hangs in the device, the other threads wait for its record; nobody may stay behind. */
static void test_cancel(const char *directory)
{
    struct pt_progress progress;
    pthread_t thread;
    struct fixture *f = setup(directory);

    open_reader(f);
    atomic_store(&injection, HELD);
    CHECK(pthread_create(&thread, NULL, replay_in_thread, f) == 0);
    while (atomic_load(&calls) < 2)
        pause_ms(1);
    pause_ms(10);
    pt_reader_progress(f->reader, &progress);
    CHECK(progress.reads < WIDTH && progress.bytes == progress.reads * EXPERT_BYTES);
    pt_reader_cancel(f->reader);
    atomic_store(&release_held, 1);
    pthread_join(thread, NULL);
    pt_reader_progress(f->reader, &progress);
    CHECK(progress.reads <= WIDTH);
    CHECK(replay(f) == -ECANCELED);
    teardown(f);
}

static void *replay_busy(void *argument)
{
    CHECK(replay(argument) == 0);
    return NULL;
}

static void test_one_replay_at_a_time(const char *directory)
{
    struct pt_fault fault;
    pthread_t thread;
    struct fixture *f = setup(directory);

    open_reader(f);
    atomic_store(&injection, HELD);
    CHECK(pthread_create(&thread, NULL, replay_busy, f) == 0);
    while (atomic_load(&calls) < 1)
        pause_ms(1);
    CHECK(pt_reader_replay(f->reader, &f->plan, NULL, &f->pass, &fault) == -EBUSY);
    atomic_store(&release_held, 1);
    pthread_join(thread, NULL);
    check_complete(f);
    teardown(f);
}

static void test_arrays_that_do_not_fit(const char *directory)
{
    struct fixture *f = setup(directory);

    open_reader(f);
    f->experts[77] = EXPERTS;
    CHECK(replay(f) == -EINVAL && strcmp(f->fault.call, "experts") == 0 && f->fault.offset == 77);
    f->experts[77] = 0;
    f->record_start[3] = f->record_start[4] + 1;
    CHECK(replay(f) == -EINVAL && strcmp(f->fault.call, "record_start") == 0);
    CHECK(f->fault.offset == 4);
    f->record_start[3] = f->record_start[4];
    f->plan.num_reads--;
    CHECK(replay(f) == -EINVAL && strcmp(f->fault.call, "experts") != 0);
    f->plan.num_reads++;
    f->iteration_start[0] = 1;
    CHECK(replay(f) == -EINVAL && strcmp(f->fault.call, "iteration_start") == 0);
    f->iteration_start[0] = 0;
    CHECK(replay(f) == 0);
    close_reader(f);
    f->extents[3].offset = UINT64_MAX - 10;
    CHECK(pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault) == -EINVAL);
    CHECK(strcmp(f->fault.call, "extents") == 0 && f->fault.offset == 3);
    f->extents[3].offset = 0;
    f->extents[3].file = EXPERTS;
    CHECK(pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault) == -EINVAL);
    teardown(f);
}

static void test_empty_plan(const char *directory)
{
    struct fixture *f = setup(directory);

    open_reader(f);
    f->plan.num_reads = f->plan.num_records = 0;
    memset(f->iteration_start, 0, sizeof f->iteration_start);
    CHECK(replay(f) == 0);
    CHECK(f->pass.start_ns > 0 && f->ends[ITERATIONS - 1] == f->pass.start_ns);
    f->plan.num_iterations = 0;
    CHECK(replay(f) == 0);
    teardown(f);
}

/* A host without cachestat (before Linux 6.5, or an emulator) has nothing to test here. */
static void test_residency_before_each_read(const char *directory)
{
    const uint32_t methods[3][2] = {{PT_PREAD, PT_RESIDENCY_CACHESTAT},
                                    {PT_PREAD, PT_RESIDENCY_MINCORE},
                                    {PT_MMAP, PT_RESIDENCY_MINCORE}};
    for (int m = 0; m < 3; m++) {
        struct fixture *f = setup(directory);

        f->options.mode = methods[m][0];
        f->options.residency = methods[m][1];
        int result = pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault);
        if (result == -ENOSYS) {
            CHECK(strcmp(f->fault.call, "cachestat") == 0);
            teardown(f);
            continue;
        }
        CHECK(result == 0);
        CHECK(replay(f) == 0); /* now everything is resident */
        CHECK(replay(f) == 0);
        CHECK(sum(f->sums[PT_FIRST_BYTES]) == 0);
        CHECK(sum(f->sums[PT_REPEAT_BYTES]) == 0);
        if (f->options.mode == PT_PREAD) {
            evict(f);
            CHECK(replay(f) == 0);
            CHECK(sum(f->sums[PT_FIRST_BYTES]) == 0);
            CHECK(sum(f->sums[PT_REPEAT_BYTES]) % pt_page_bytes() == 0);
        }
        teardown(f);
    }
}

/* ---- Bus errors ---- */

static _Atomic int foreign_faults;
static sigjmp_buf foreign_escape;

static void on_foreign_fault(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add(&foreign_faults, 1);
    siglongjmp(foreign_escape, 1);
}

/* Two pages of which the second lies behind the end of its file. */
static unsigned char *map_past_the_end(const char *directory)
{
    char path[600];

    snprintf(path, sizeof path, "%s/short", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)pt_page_bytes()) == 0);
    void *map = mmap(NULL, 2 * pt_page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    close(fd);
    unlink(path);
    return map;
}

static void test_a_copy_survives_bus_errors_again_and_again(const char *directory)
{
    const size_t page = pt_page_bytes();
    unsigned char *map = map_past_the_end(directory);
    unsigned char *copy = malloc(2 * page);
    const void *fault_at = NULL;

    CHECK(copy && pt_sigbus_begin() == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(pt_sigbus_copy(copy, map + 7, page, &fault_at) == -EFAULT);
        CHECK((const unsigned char *)fault_at >= map + page);
        CHECK((const unsigned char *)fault_at < map + page + 7);
        CHECK(pt_sigbus_copy(copy, map, page, &fault_at) == 0);
    }
    pt_sigbus_end();
    munmap(map, 2 * page);
    free(copy);
}

/* A SIGBUS of somebody else, or at the destination, reaches the handler that was there before. */
static void test_foreign_bus_errors_are_passed_on(const char *directory)
{
    const size_t page = pt_page_bytes();
    struct sigaction action = {.sa_handler = on_foreign_fault, .sa_flags = SA_NODEFER};
    struct sigaction restored;
    unsigned char *map = map_past_the_end(directory);
    unsigned char *from = calloc(1, page);
    const void *fault_at;

    atomic_store(&foreign_faults, 0);
    CHECK(from && sigaction(SIGBUS, &action, NULL) == 0);
    CHECK(pt_sigbus_begin() == 0 && pt_sigbus_begin() == 0);
    pt_sigbus_end();
    if (sigsetjmp(foreign_escape, 1) == 0)
        (void)*(volatile unsigned char *)(map + page);
    CHECK(atomic_load(&foreign_faults) == 1);
    if (sigsetjmp(foreign_escape, 1) == 0)
        CHECK(pt_sigbus_copy(map + page, from, page, &fault_at) == 0);
    CHECK(atomic_load(&foreign_faults) == 2);
    pt_sigbus_end();
    CHECK(sigaction(SIGBUS, NULL, &restored) == 0 && restored.sa_handler == on_foreign_fault);
    signal(SIGBUS, SIG_DFL);
    munmap(map, 2 * page);
    free(from);
}

/* Whoever took SIGBUS over during a replay keeps it. */
static void test_a_later_handler_stays(const char *directory)
{
    struct sigaction now;

    (void)directory;
    CHECK(pt_sigbus_begin() == 0);
    CHECK(signal(SIGBUS, on_foreign_fault) != SIG_ERR);
    pt_sigbus_end();
    CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == on_foreign_fault);
    signal(SIGBUS, SIG_DFL);
}

static const struct test tests[] = {
    TEST(content_matches_its_definition),
    TEST(cancelled_write),
    TEST(histogram_buckets),
    TEST(groups_open_in_order),
    TEST(schedule_without_reads),
    TEST(stop_wakes_those_who_wait),
    TEST(replay),
    TEST(short_reads),
    TEST(interrupted_reads),
    TEST(device_error),
    TEST(truncated_file),
    TEST(file_truncated_within_a_page),
    TEST(missing_file),
    TEST(wrong_content),
    TEST(content_by_digests),
    TEST(identities),
    TEST(cancel),
    TEST(one_replay_at_a_time),
    TEST(arrays_that_do_not_fit),
    TEST(empty_plan),
    TEST(residency_before_each_read),
    TEST(a_copy_survives_bus_errors_again_and_again),
    TEST(foreign_bus_errors_are_passed_on),
    TEST(a_later_handler_stays),
};

int main(int argc, char **argv)
{
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
