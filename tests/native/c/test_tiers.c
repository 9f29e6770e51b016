/* SPDX-License-Identifier: Apache-2.0 */
/* Sources, arena and prefetch worker, with faults on demand (see fixture.h).
 * Usage: test_tiers DIRECTORY, an empty one for its files. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alignment.h"
#include "arena.h"
#include "content.h"
#include "digest.h"
#include "fixture.h"
#include "residency.h"

/* ---- Digest ---- */

static void test_digest_is_xxh64(const char *directory)
{
    static const struct {
        const char *text;
        uint64_t seed;
        uint64_t hash;
    } known[] = {
        {"", 0, UINT64_C(0xef46db3751d8e999)},
        {"a", 0, UINT64_C(0xd24ec4f1a98c6e5b)},
        {"abc", 0, UINT64_C(0x44bc2cf5ad770999)},
        {"", 1, UINT64_C(0xd5afba1336a3be4b)},
        {"Nobody inspects the spammish repetition", 0, UINT64_C(0xfbcea83c8a378bf1)},
    };

    (void)directory;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECK(pt_digest(known[i].text, strlen(known[i].text), known[i].seed) == known[i].hash);
}

static uint64_t expected_hash(const struct fixture *f)
{
    static unsigned char expert[EXPERT_BYTES];
    uint64_t hash = 0;

    for (uint64_t read = 0; read < READS; read++) {
        pt_content_fill(expert, EXPERT_BYTES, SEED, f->experts[read], 0);
        hash += pt_digest(expert, EXPERT_BYTES, read);
    }
    return hash;
}

/* ---- Sources ---- */

/* False where this kernel, file system or emulator does not have the mode. */
static bool open_in_mode(struct fixture *f, uint32_t mode)
{
    f->options.mode = mode;
    int result = pt_reader_open(&f->pool, &f->options, f->arena, &f->reader, &f->fault);
    if (result == -EOPNOTSUPP && mode == PT_DONTCACHE)
        CHECK(strcmp(f->fault.call, "preadv2") == 0 && f->fault.file == 0);
    else if (result == -EOPNOTSUPP && mode == PT_DIRECT) /* an emulator's statx */
        CHECK(strcmp(f->fault.call, "statx") == 0 && f->fault.file == 0);
    else if (result == -EINVAL && mode == PT_POPULATE)
        CHECK(strcmp(f->fault.call, "madvise") == 0 && f->fault.file == 0);
    else
        CHECK(result == 0);
    return result == 0;
}

static void test_every_source_returns_the_same(const char *directory)
{
    for (int kind = NONE; kind <= INTERRUPTED; kind++)
        for (uint32_t mode = PT_PREAD; mode <= PT_DROP_BEHIND; mode++) {
            struct fixture *f = setup(directory);

            f->pass.hash_content = 1;
            if (open_in_mode(f, mode)) {
                atomic_store(&injection, kind);
                CHECK(replay(f) == 0);
                check_complete(f);
                CHECK(f->pass.content_hash == expected_hash(f));
            }
            teardown(f);
        }
}

static void test_sources_open_files_for_each_read(const char *directory)
{
    for (uint32_t mode = PT_PREAD; mode <= PT_DROP_BEHIND; mode++) {
        struct fixture *f = setup(directory);

        f->options.max_descriptors = 4 * 3;
        if (open_in_mode(f, mode)) {
            CHECK(replay(f) == 0);
            check_complete(f);
        }
        teardown(f);
    }
}

static void test_device_errors_name_the_call(const char *directory)
{
    const uint32_t modes[] = {PT_DIRECT, PT_DONTCACHE, PT_DROP_BEHIND};

    for (int m = 0; m < 3; m++) {
        struct fixture *f = setup(directory);

        if (open_in_mode(f, modes[m])) {
            atomic_store(&calls, 0);
            atomic_store(&injection, DEVICE_ERROR);
            CHECK(replay(f) == -EIO);
            CHECK(strcmp(f->fault.call, modes[m] == PT_DONTCACHE ? "preadv2" : "pread") == 0);
            CHECK(f->fault.file == f->fault.expert && f->fault.file < EXPERTS);
        }
        teardown(f);
    }
}

static void test_truncated_files(const char *directory)
{
    const off_t sizes[] = {100, 8192, 3 + EXPERT_BYTES - 1};

    for (int s = 0; s < 3; s++)
        for (uint32_t mode = PT_PREAD; mode <= PT_DROP_BEHIND; mode++) {
            struct fixture *f = setup(directory);

            if (open_in_mode(f, mode)) {
                CHECK(truncate(f->paths[5], sizes[s]) == 0);
                f->pass.verify_every = 0;
                CHECK(replay(f) == -ENODATA);
                CHECK(f->fault.file == 5);
                CHECK(f->fault.offset >= (uint64_t)sizes[s]);
                CHECK(f->fault.offset < (uint64_t)sizes[s] + pt_page_bytes());
            }
            teardown(f);
        }
}

static void test_direct_without_the_file_system(const char *directory)
{
    struct fixture *f = setup(directory);

    atomic_store(&refuse_direct, 1);
    f->options.mode = PT_DIRECT;
    CHECK(pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault) == -EINVAL);
    CHECK(strcmp(f->fault.call, "open") == 0 && f->fault.file == 0);
    teardown(f);
}

/* 0: no O_DIRECT here. */
static uint32_t block_bytes(const struct fixture *f)
{
    struct pt_alignment alignment = {0, 0};
    int fd = open(f->paths[0], O_RDONLY | O_CLOEXEC | O_DIRECT);
    int result = pt_alignment_of(fd, &alignment);

    CHECK(fd >= 0 && (result == 0 || result == -EOPNOTSUPP));
    close(fd);
    CHECK((alignment.file_bytes & (alignment.file_bytes - 1)) == 0);
    return alignment.file_bytes;
}

static uint64_t over_read(const struct fixture *f, uint32_t expert, uint64_t block)
{
    uint64_t bytes = 0;

    for (uint64_t i = 2 * expert; i < 2 * expert + 2; i++) {
        const struct pt_extent *extent = &f->extents[i];

        for (uint64_t at = extent->offset / block * block; at < extent->offset + extent->length;
             at += block)
            bytes += block;
        bytes -= extent->length;
    }
    return bytes;
}

static void test_direct_counts_what_the_device_brings(const char *directory)
{
    struct fixture *f = setup(directory);
    uint64_t block = block_bytes(f);
    uint64_t expected = 0;

    for (uint32_t i = 0; i < READS && block; i++)
        expected += over_read(f, f->experts[i], block);
    evict(f);
    f->options.residency = PT_RESIDENCY_MINCORE;
    if (!open_in_mode(f, PT_DIRECT)) {
        teardown(f);
        return;
    }
    CHECK(replay(f) == 0);
    check_complete(f);
    CHECK(sum(f->sums[PT_OVER_READ_BYTES]) == expected && expected > 0);
    CHECK(sum(f->sums[PT_FIRST_BYTES]) == (uint64_t)EXPERTS * EXPERT_BYTES);
    CHECK(sum(f->sums[PT_REPEAT_BYTES]) == (uint64_t)(READS - EXPERTS) * EXPERT_BYTES);
    CHECK(sum(f->sums[PT_RESIDENT_BYTES]) == 0);
    CHECK(resident_pages(f) == 0);
    teardown(f);
}

/* Aligned in every way, the device writes into the thread's buffer. */
static void test_direct_without_a_detour(const char *directory)
{
    struct fixture *f = setup(directory);

    for (uint32_t e = 0; e < EXPERTS; e++) {
        f->extents[2 * e] = (struct pt_extent){e, 4096, 8192};
        f->extents[2 * e + 1] = (struct pt_extent){e, 0, 4096};
    }
    f->pass.verify_every = 0;
    f->pass.hash_content = 1;
    CHECK(open_in_mode(f, PT_PREAD));
    CHECK(replay(f) == 0);
    uint64_t hash = f->pass.content_hash;
    close_reader(f);
    if (open_in_mode(f, PT_DIRECT)) {
        CHECK(replay(f) == 0);
        CHECK(f->pass.content_hash == hash);
        CHECK(sum(f->sums[PT_OVER_READ_BYTES]) == 0);
    }
    teardown(f);
}

/* Each of the two extents keeps the page that it shares with the other; the file's last page goes
 * with the extent that ends there. */
static void test_drop_behind_leaves_shared_pages_only(const char *directory)
{
    struct fixture *f = setup(directory);
    uint64_t page = pt_page_bytes();
    uint64_t shared = 0;

    for (uint32_t e = 0; e < EXPERTS; e++) {
        uint64_t cut = 3 + f->extents[2 * e].length;

        shared += cut / page == 0 ? 1 : 2; /* the first page holds 3 bytes of nobody's */
    }
    evict(f);
    f->options.advice = PT_ADVICE_RANDOM;
    CHECK(open_in_mode(f, PT_DROP_BEHIND));
    CHECK(replay(f) == 0);
    check_complete(f);
    CHECK(resident_pages(f) <= shared);
    teardown(f);
}

/* ---- Arena ---- */

static uint64_t locked_bytes(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");

    CHECK(status);
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmLck: %llu kB", &kib) == 1)
            break;
    fclose(status);
    return kib * 1024;
}

static const uint32_t held[] = {7, 2, 11};
enum { HELD_EXPERTS = 3 };

static void open_arena(struct fixture *f)
{
    CHECK(pt_arena_open(&f->pool, held, HELD_EXPERTS, 0, &f->arena, &f->fault) == 0);
    CHECK(pt_arena_find(f->arena, 7) == NULL);
    CHECK(pt_arena_lock(f->arena, &f->fault) == 0);
}

static bool is_held(uint32_t expert)
{
    for (int i = 0; i < HELD_EXPERTS; i++)
        if (held[i] == expert)
            return true;
    return false;
}

static void check_arena(const struct fixture *f)
{
    for (uint32_t e = 0; e < EXPERTS; e++) {
        const unsigned char *bytes = pt_arena_find(f->arena, e);

        CHECK((bytes != NULL) == is_held(e));
        CHECK((uintptr_t)bytes % PT_ARENA_SLOT_BYTES == 0);
        if (bytes)
            CHECK(pt_content_mismatch(bytes, EXPERT_BYTES, SEED, e, 0) == EXPERT_BYTES);
    }
}

/* Some pages of one expert were in the cache before: after the loading just these are there. */
static void load_past_the_cache(const char *directory, bool direct)
{
    struct fixture *f = setup(directory);
    struct pt_preload preload;
    unsigned char byte;

    atomic_store(&refuse_direct, !direct);
    direct = direct && block_bytes(f) != 0;
    evict(f);
    int fd = open(f->paths[2], O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
    CHECK(__real_pread(fd, &byte, 1, 3 * (off_t)pt_page_bytes() + 5) == 1);
    close(fd);
    uint64_t before = resident_pages(f);
    CHECK(before == 1);
    open_arena(f);
    CHECK(pt_arena_preload(f->arena, &preload, &f->fault) == 0);
    check_arena(f);
    CHECK(resident_pages(f) == before);
    CHECK(preload.residency == 0 && preload.admitted_bytes == 0);
    CHECK(preload.bytes == (uint64_t)HELD_EXPERTS * EXPERT_BYTES && preload.ns > 0);
    CHECK(preload.direct_bytes == (direct ? preload.bytes : 0));
    CHECK((preload.over_read_bytes > 0) == direct);
    CHECK(pt_arena_progress(f->arena) == preload.bytes);
    teardown(f);
}

static void test_preload_by_direct_reads(const char *directory)
{
    load_past_the_cache(directory, true);
}

static void test_preload_by_dropping(const char *directory)
{
    load_past_the_cache(directory, false);
}

static void test_preload_goes_on_after_interruptions(const char *directory)
{
    for (int kind = SHORT_READS; kind <= INTERRUPTED; kind++)
        for (int direct = 0; direct < 2; direct++) {
            struct fixture *f = setup(directory);
            struct pt_preload preload;

            atomic_store(&refuse_direct, !direct);
            open_arena(f);
            atomic_store(&injection, kind);
            CHECK(pt_arena_preload(f->arena, &preload, &f->fault) == 0);
            check_arena(f);
            teardown(f);
        }
}

static void test_arena_serves_what_it_holds(const char *directory)
{
    struct fixture *f = setup(directory);
    struct pt_preload preload;
    uint64_t reads = 0;
    uint64_t before = locked_bytes();

    evict(f);
    open_arena(f);
    CHECK(locked_bytes() - before == pt_arena_bytes(f->arena));
    CHECK(pt_arena_preload(f->arena, &preload, &f->fault) == 0);
    f->options.residency = PT_RESIDENCY_MINCORE;
    f->options.advice = PT_ADVICE_RANDOM;
    f->pass.hash_content = 1;
    open_reader(f);
    CHECK(replay(f) == 0);
    check_complete(f);
    for (uint32_t i = 0; i < READS; i++)
        reads += is_held(f->experts[i]);
    CHECK(sum(f->sums[PT_ARENA_READS]) == reads);
    CHECK(sum(f->sums[PT_ARENA_BYTES]) == reads * EXPERT_BYTES);
    CHECK(f->pass.content_hash == expected_hash(f));
    CHECK(sum(f->sums[PT_FIRST_BYTES]) <= (EXPERTS - HELD_EXPERTS) * 2 * 100000u);
    /* The files of the held ones were never read. */
    CHECK(resident_pages(f) == (EXPERTS - HELD_EXPERTS) * pt_pages_touched(3, EXPERT_BYTES));
    close_reader(f);
    pt_arena_close(f->arena);
    f->arena = NULL;
    CHECK(locked_bytes() == before);
    teardown(f);
}

/* Three experts of 10 MiB, of a file that nobody reads. */
static void test_a_partial_lock_is_undone(const char *directory)
{
    struct fixture *f = setup(directory);
    uint64_t before = locked_bytes();

    for (int i = 0; i < HELD_EXPERTS; i++)
        f->extents[2 * held[i]].length = 10 << 20;
    CHECK(pt_arena_open(&f->pool, held, HELD_EXPERTS, 0, &f->arena, &f->fault) == 0);
    atomic_store(&locks_left, 1);
    CHECK(pt_arena_lock(f->arena, &f->fault) == -ENOMEM);
    CHECK(strcmp(f->fault.call, "mlock") == 0 && f->fault.offset == 16 << 20);
    CHECK(pt_arena_progress(f->arena) == 16 << 20);
    CHECK(locked_bytes() - before == 16 << 20);
    pt_arena_close(f->arena);
    f->arena = NULL;
    CHECK(locked_bytes() == before);
    teardown(f);
}

static void test_cancelled_arena(const char *directory)
{
    struct fixture *f = setup(directory);
    struct pt_preload preload;

    open_arena(f);
    pt_arena_cancel(f->arena);
    CHECK(pt_arena_lock(f->arena, &f->fault) == -ECANCELED);
    CHECK(pt_arena_preload(f->arena, &preload, &f->fault) == -ECANCELED);
    CHECK(pt_arena_find(f->arena, held[0]) == NULL);
    CHECK(preload.bytes == 0);
    teardown(f);
}

static void test_failed_preload(const char *directory)
{
    struct fixture *f = setup(directory);
    struct pt_preload preload;

    open_arena(f);
    CHECK(truncate(f->paths[2], 1000) == 0);
    CHECK(pt_arena_preload(f->arena, &preload, &f->fault) == -ENODATA);
    CHECK(f->fault.file == 2);
    CHECK(pt_arena_find(f->arena, held[0]) == NULL);
    teardown(f);
}

static void test_arenas_that_do_not_fit(const char *directory)
{
    const uint32_t unknown[] = {3, EXPERTS};
    const uint32_t twice[] = {3, 4, 3};
    struct fixture *f = setup(directory);

    CHECK(pt_arena_open(&f->pool, unknown, 2, 0, &f->arena, &f->fault) == -EINVAL);
    CHECK(strcmp(f->fault.call, "experts") == 0 && f->fault.offset == 1);
    CHECK(pt_arena_open(&f->pool, twice, 3, 0, &f->arena, &f->fault) == -EINVAL);
    CHECK(f->fault.offset == 2);
    f->extents[6].length = INT64_MAX - 100;
    CHECK(pt_arena_open(&f->pool, unknown, 1, 0, &f->arena, &f->fault) == -EINVAL);
    f->arena = NULL;
    teardown(f);
}

static void test_an_empty_arena(const char *directory)
{
    struct fixture *f = setup(directory);
    struct pt_preload preload;

    CHECK(pt_arena_open(&f->pool, NULL, 0, 0, &f->arena, &f->fault) == 0);
    CHECK(pt_arena_lock(f->arena, &f->fault) == 0 && pt_arena_bytes(f->arena) == 0);
    CHECK(pt_arena_preload(f->arena, &preload, &f->fault) == 0 && preload.bytes == 0);
    open_reader(f);
    CHECK(replay(f) == 0);
    check_complete(f);
    CHECK(sum(f->sums[PT_ARENA_READS]) == 0);
    teardown(f);
}

/* ---- Hints ---- */

/* A method of residency that this kernel has. */
static uint32_t some_residency(const struct fixture *f)
{
    int fd = open(f->paths[0], O_RDONLY | O_CLOEXEC);
    int64_t pages = pt_cachestat_pages(fd, 0, 1);

    close(fd);
    return pages < 0 ? PT_RESIDENCY_MINCORE : PT_RESIDENCY_CACHESTAT;
}

static struct fixture *setup_hints(const char *directory, uint32_t delivery)
{
    struct fixture *f = setup(directory);

    f->options.delivery = delivery;
    f->options.hint_chunk_bytes = 8192;
    f->options.residency = some_residency(f);
    return f;
}

static void check_hints(const struct fixture *f)
{
    uint64_t submitted = 0;

    for (uint32_t i = 0; i < ITERATIONS; i++)
        CHECK(f->sums[PT_HINT_SUBMITTED][i] ==
              f->sums[PT_HINT_OVERWRITTEN][i] + f->sums[PT_HINT_COMPLETED][i] +
                  f->sums[PT_HINT_FAILED][i]);
    for (uint32_t r = 0; r < RECORDS; r++)
        submitted += f->record_start[r] < f->record_start[r + 1] &&
                     f->hint_start[r] < f->hint_start[r + 1];
    CHECK(sum(f->sums[PT_HINT_SUBMITTED]) == submitted);
    CHECK(sum(f->sums[PT_HINT_BROUGHT_BYTES]) ==
          sum(f->sums[PT_HINT_USED_BYTES]) + sum(f->sums[PT_HINT_EVICTED_BYTES]) +
              sum(f->sums[PT_HINT_LOST_BYTES]) + f->pass.hint_unused_bytes);
}

static void replay_with_hints(struct fixture *f)
{
    evict(f);
    open_reader(f);
    CHECK(replay(f) == 0);
    check_complete(f);
    check_hints(f);
    CHECK(sum(f->sums[PT_HINT_FAILED]) == 0 && f->pass.hint_result == 0);
    CHECK(sum(f->sums[PT_HINT_COMPLETED]) > 0 && f->pass.hint_busy_ns > 0);
    close_reader(f);
}

static void test_every_hint_is_accounted_for(const char *directory)
{
    const uint32_t modes[] = {PT_PREAD, PT_MMAP, PT_DROP_BEHIND};
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);

    for (uint32_t delivery = PT_DELIVERY_ADVICE; delivery <= PT_DELIVERY_BLOCKING; delivery++)
        for (int m = 0; m < 3; m++)
            for (uint32_t barrier = PT_BARRIER_RECORD; barrier <= PT_BARRIER_NONE; barrier++)
                for (uint64_t kept = 0; kept <= EXPERTS; kept += EXPERTS / 2) {
                    f->options.delivery = delivery;
                    f->options.barrier = barrier;
                    f->options.mode = modes[m];
                    f->options.max_hint_descriptors = kept;
                    f->options.hint_chunk_bytes = kept * 4096; /* whole as well */
                    replay_with_hints(f);
                }
    teardown(f);
}

/* Its first record reads expert 0 and hints all others, of which the second record reads three. */
static void hint_once(struct fixture *f)
{
    for (uint32_t i = 0; i < 4; i++)
        f->experts[i] = i;
    for (uint32_t e = 1; e < EXPERTS; e++)
        f->experts[3 + e] = e;
    f->record_start[0] = 0;
    f->record_start[1] = 1;
    f->record_start[2] = 4;
    f->iteration_start[1] = 1;
    f->iteration_start[2] = 2;
    f->hint_start[0] = 0;
    f->hint_start[1] = f->hint_start[2] = EXPERTS - 1;
    f->plan.num_reads = 4;
    f->plan.num_records = 2;
    f->plan.num_iterations = 2;
    f->hints = (struct pt_hints){f->hint_start, f->experts + 4, EXPERTS - 1};
}

static uint64_t rounded(uint32_t experts)
{
    return experts * pt_pages_touched(3, EXPERT_BYTES) * pt_page_bytes();
}

/* One extent per expert, so that no page is counted for two. */
static void join_extents(struct fixture *f)
{
    for (uint32_t e = 0; e < EXPERTS; e++) {
        f->extents[e] = (struct pt_extent){e, 3, EXPERT_BYTES};
        f->expert_start[e + 1] = e + 1;
    }
    f->pool.num_extents = EXPERTS;
}

static uint64_t *column(const struct fixture *f, enum pt_column name)
{
    return f->pass.sums + (uint64_t)name * f->plan.num_iterations;
}

static void test_one_hint_brings_every_page(const char *directory)
{
    for (uint64_t chunk = 0; chunk <= 16384; chunk += 8192) {
        struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);

        if (f->options.residency != PT_RESIDENCY_CACHESTAT) {
            teardown(f);
            return;
        }
        f->options.hint_chunk_bytes = chunk;
        f->options.advice = PT_ADVICE_RANDOM;
        join_extents(f);
        hint_once(f);
        evict(f);
        open_reader(f);
        CHECK(replay(f) == 0);
        CHECK(column(f, PT_HINT_SUBMITTED)[0] == 1 && column(f, PT_HINT_COMPLETED)[0] == 1);
        CHECK(column(f, PT_HINT_BYTES)[0] == rounded(EXPERTS - 1));
        CHECK(column(f, PT_HINT_RESIDENT_AFTER)[0] == rounded(EXPERTS - 1));
        CHECK(resident_pages(f) * pt_page_bytes() <= rounded(EXPERTS));
        uint64_t calls_each = chunk ? (3 + EXPERT_BYTES + chunk - 1) / chunk : 1;
        /* None for what a read had brought before. */
        CHECK(atomic_load(&hints_given) <= (EXPERTS - 1) * calls_each);
        CHECK(atomic_load(&hints_given) >= (EXPERTS - 4) * calls_each);
        /* What the reads did not find absent, the hint had brought. */
        uint64_t demand = column(f, PT_FIRST_BYTES)[0] + column(f, PT_FIRST_BYTES)[1];
        uint64_t brought = column(f, PT_HINT_BROUGHT_BYTES)[0];
        CHECK(demand + brought <= rounded(EXPERTS));
        CHECK(demand + brought + column(f, PT_HINT_RACED_BYTES)[0] >= rounded(EXPERTS));
        CHECK(f->pass.hint_unused_bytes >= rounded(EXPERTS - 4));
        teardown(f);
    }
}

static void test_what_is_resident_is_hinted_without_a_call(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);

    open_reader(f);
    CHECK(replay(f) == 0);
    check_hints(f);
    CHECK(atomic_load(&hints_given) == 0);
    CHECK(sum(f->sums[PT_HINT_COMPLETED]) > 0 && sum(f->sums[PT_HINT_BYTES]) > 0);
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        CHECK(f->sums[PT_HINT_RESIDENT_BEFORE][i] == f->sums[PT_HINT_BYTES][i]);
        CHECK(f->sums[PT_HINT_RESIDENT_AFTER][i] == f->sums[PT_HINT_BYTES][i]);
    }
    CHECK(sum(f->sums[PT_HINT_BROUGHT_BYTES]) == 0 && sum(f->sums[PT_HINT_RACED_BYTES]) == 0);
    teardown(f);
}

/* Time stands still: each hint comes at once after the one before. */
static void test_a_worker_whose_hints_come_quickly_is_not_woken(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);

    f->options.threads = 1;
    open_reader(f);
    atomic_store(&clock_step_ns, 0);
    CHECK(replay(f) == 0);
    check_hints(f);
    CHECK(atomic_load(&single_wakes) == 1); /* the reading thread says that it is there */
    teardown(f);
}

static void *release_when_hinted(void *argument)
{
    (void)argument;
    while (atomic_load(&hints_given) == 0)
        pause_ms(1);
    atomic_store(&release_held, 1);
    return NULL;
}

/* Time leaps: nothing comes quickly.  One record gives a hint, and its first read waits for it. */
static void test_a_worker_whose_hints_come_slowly_sleeps_until_it_is_woken(const char *directory)
{
    const uint32_t late = RECORDS - 6;
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);
    pthread_t thread;

    for (uint32_t r = 0; r <= RECORDS; r++)
        f->hint_start[r] = r <= late ? 0 : f->hints.num_experts;
    f->options.threads = 1;
    f->options.residency = PT_RESIDENCY_OFF; /* a call for every hint */
    open_reader(f);
    atomic_store(&clock_step_ns, 1000000000);
    atomic_store(&injection, HELD);
    atomic_store(&held_call, 2 * (unsigned)f->record_start[late]);
    CHECK(pthread_create(&thread, NULL, release_when_hinted, NULL) == 0);
    CHECK(replay(f) == 0);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&naps) == 0);
    CHECK(sum(f->sums[PT_HINT_COMPLETED]) == 1 && sum(f->sums[PT_HINT_OVERWRITTEN]) == 0);
    teardown(f);
}

static void test_a_hint_preempts_no_read(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);
    int own = sched_getscheduler(0);

    f->options.residency = PT_RESIDENCY_OFF; /* a call for every hint */
    open_reader(f);
    CHECK(replay(f) == 0);
    CHECK(atomic_load(&hinting_class) == (own == SCHED_OTHER ? SCHED_BATCH : own));
    CHECK(sched_getscheduler(0) == own);
    teardown(f);
}

struct waiting {
    struct fixture *fixture;
    struct pt_progress progress;
};

static void *release_when_read(void *argument)
{
    struct waiting *waiting = argument;

    do {
        pause_ms(1);
        pt_reader_progress(waiting->fixture->reader, &waiting->progress);
    } while (waiting->progress.reads < READS);
    atomic_store(&hold_hints, 0);
    return NULL;
}

/* The worker hangs in its first call until every read is made: no read waits for it, and of all the
 * hints in between the last one is left. */
static void test_demand_never_waits_for_the_worker(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);
    struct waiting waiting = {.fixture = f};
    pthread_t thread;

    f->options.residency = PT_RESIDENCY_OFF; /* a call for every hint */
    open_reader(f);
    atomic_store(&hold_hints, 1);
    CHECK(pthread_create(&thread, NULL, release_when_read, &waiting) == 0);
    CHECK(replay(f) == 0);
    pthread_join(thread, NULL);
    check_complete(f);
    check_hints(f);
    /* One, if the worker woke up only when the last hint was there. */
    CHECK(sum(f->sums[PT_HINT_COMPLETED]) >= 1 && sum(f->sums[PT_HINT_COMPLETED]) <= 2);
    teardown(f);
}

static void *let_a_read_overtake_its_hint(void *argument)
{
    struct waiting *waiting = argument;
    uint64_t all = waiting->fixture->plan.num_reads;

    while (atomic_load(&hints_given) < 1)
        pause_ms(1);
    atomic_store(&release_held, 1); /* the first read, and with it the others */
    do {
        pause_ms(1);
        pt_reader_progress(waiting->fixture->reader, &waiting->progress);
    } while (waiting->progress.reads < all);
    atomic_store(&hold_hints, 0);
    return NULL;
}

/* The hint found expert 1 absent, and resident after its call: but the read brought it, and counts
 * it.  The other experts are the hint's own. */
static void test_what_a_read_brought_is_not_the_hint_s(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);
    struct waiting waiting = {.fixture = f};
    pthread_t thread;

    f->options.hint_chunk_bytes = 0;
    f->options.advice = PT_ADVICE_RANDOM;
    join_extents(f);
    hint_once(f);
    evict(f);
    open_reader(f);
    atomic_store(&hold_hints, 1);
    atomic_store(&injection, HELD);
    CHECK(pthread_create(&thread, NULL, let_a_read_overtake_its_hint, &waiting) == 0);
    CHECK(replay(f) == 0);
    pthread_join(thread, NULL);
    CHECK(column(f, PT_FIRST_BYTES)[1] == rounded(3));
    CHECK(column(f, PT_HINT_RACED_BYTES)[0] == rounded(1));
    CHECK(column(f, PT_HINT_RESIDENT_BEFORE)[0] == rounded(2));
    if (f->options.residency == PT_RESIDENCY_CACHESTAT)
        CHECK(column(f, PT_HINT_BROUGHT_BYTES)[0] == rounded(EXPERTS - 4));
    teardown(f);
}

static void test_a_hint_that_fails_ends_nothing(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);

    f->options.residency = PT_RESIDENCY_OFF; /* a call for every hint */
    open_reader(f);
    atomic_store(&hints_left, 5);
    CHECK(replay(f) == 0);
    check_complete(f);
    check_hints(f);
    CHECK(sum(f->sums[PT_HINT_FAILED]) > 0 && f->pass.hint_result == -EIO);
    CHECK(strcmp(f->pass.hint_fault.call, "posix_fadvise") == 0);
    CHECK(f->pass.hint_fault.file < EXPERTS && f->pass.hint_fault.expert < EXPERTS);
    CHECK(f->pass.hint_fault.file == f->pass.hint_fault.expert);
    atomic_store(&hints_left, -1);
    CHECK(replay(f) == 0);
    CHECK(sum(f->sums[PT_HINT_FAILED]) == 0 && f->pass.hint_result == 0);
    teardown(f);
}

static void *cancel_when_hinting(void *argument)
{
    struct fixture *f = argument;

    while (atomic_load(&hints_given) < 1)
        pause_ms(1);
    pt_reader_cancel(f->reader);
    atomic_store(&release_held, 1);
    pause_ms(20);
    atomic_store(&hold_hints, 0);
    return NULL;
}

static void test_cancel_ends_a_hint_within_one_chunk(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);
    pthread_t thread;

    f->options.hint_chunk_bytes = 4096;
    f->options.residency = PT_RESIDENCY_OFF; /* a call for every hint */
    open_reader(f);
    atomic_store(&hold_hints, 1);
    atomic_store(&injection, HELD); /* the reads do not end before the cancel */
    CHECK(pthread_create(&thread, NULL, cancel_when_hinting, f) == 0);
    CHECK(replay(f) == -ECANCELED);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&hints_given) == 1);
    CHECK(replay(f) == -ECANCELED);
    CHECK(atomic_load(&hints_given) == 1);
    teardown(f);
}

/* After a read that failed the worker serves the next replay as ever. */
static void test_hints_after_a_failure(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_BLOCKING);

    open_reader(f);
    CHECK(truncate(f->paths[5], 100) == 0);
    CHECK(replay(f) == -ENODATA);
    CHECK(f->fault.file == 5);
    CHECK(truncate(f->paths[5], 3 + EXPERT_BYTES) == 0);
    f->pass.verify_every = 0;
    CHECK(replay(f) == 0);
    check_hints(f);
    CHECK(sum(f->sums[PT_HINT_FAILED]) == 0);
    teardown(f);
}

static void test_a_blocking_hint_that_fails(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_BLOCKING);

    hint_once(f);
    f->plan.num_reads = f->plan.num_records = f->plan.num_iterations = 1;
    f->iteration_start[1] = 1;
    open_reader(f);
    CHECK(truncate(f->paths[5], 100) == 0);
    CHECK(replay(f) == 0);
    CHECK(column(f, PT_HINT_FAILED)[0] == 1 && column(f, PT_HINT_COMPLETED)[0] == 0);
    CHECK(f->pass.hint_result == -ENODATA && f->pass.hint_fault.file == 5);
    CHECK(strcmp(f->pass.hint_fault.call, "pread") == 0);
    /* Up to and with the one that failed. */
    CHECK(column(f, PT_HINT_BYTES)[0] > 0 && column(f, PT_HINT_BYTES)[0] <= 5 * 2 * 100000u);
    teardown(f);
}

static void test_hints_that_do_not_fit(const char *directory)
{
    struct fixture *f = setup_hints(directory, PT_DELIVERY_ADVICE);
    struct pt_preload preload;

    f->options.mode = PT_DIRECT;
    CHECK(pt_reader_open(&f->pool, &f->options, NULL, &f->reader, &f->fault) == -EINVAL);
    CHECK(strcmp(f->fault.call, "options") == 0 && f->fault.file == PT_NONE);
    f->options.mode = PT_PREAD;
    open_reader(f);
    CHECK(pt_reader_replay(f->reader, &f->plan, NULL, &f->pass, &f->fault) == -EINVAL);
    f->hint_start[3]++;
    f->hint_start[4] = f->hint_start[3] - 1;
    CHECK(replay(f) == -EINVAL && strcmp(f->fault.call, "hint_start") == 0);
    f->hint_start[3]--;
    f->hint_start[4] = f->hint_start[3];
    f->hints.num_experts--;
    CHECK(replay(f) == -EINVAL && strcmp(f->fault.call, "hint_start") == 0);
    f->hints.num_experts++;
    CHECK(replay(f) == 0);
    close_reader(f);
    open_arena(f);
    CHECK(pt_arena_preload(f->arena, &preload, &f->fault) == 0);
    open_reader(f);
    CHECK(replay(f) == -EINVAL && strcmp(f->fault.call, "hint_experts") == 0);
    CHECK(is_held(f->hints.experts[f->fault.offset]));
    teardown(f);
}

static const struct test tests[] = {
    TEST(digest_is_xxh64),
    TEST(every_source_returns_the_same),
    TEST(sources_open_files_for_each_read),
    TEST(device_errors_name_the_call),
    TEST(truncated_files),
    TEST(direct_without_the_file_system),
    TEST(direct_counts_what_the_device_brings),
    TEST(direct_without_a_detour),
    TEST(drop_behind_leaves_shared_pages_only),
    TEST(preload_by_direct_reads),
    TEST(preload_by_dropping),
    TEST(preload_goes_on_after_interruptions),
    TEST(arena_serves_what_it_holds),
    TEST(a_partial_lock_is_undone),
    TEST(cancelled_arena),
    TEST(failed_preload),
    TEST(arenas_that_do_not_fit),
    TEST(an_empty_arena),
    TEST(every_hint_is_accounted_for),
    TEST(one_hint_brings_every_page),
    TEST(what_is_resident_is_hinted_without_a_call),
    TEST(a_worker_whose_hints_come_quickly_is_not_woken),
    TEST(a_worker_whose_hints_come_slowly_sleeps_until_it_is_woken),
    TEST(a_hint_preempts_no_read),
    TEST(demand_never_waits_for_the_worker),
    TEST(what_a_read_brought_is_not_the_hint_s),
    TEST(a_hint_that_fails_ends_nothing),
    TEST(cancel_ends_a_hint_within_one_chunk),
    TEST(hints_after_a_failure),
    TEST(a_blocking_hint_that_fails),
    TEST(hints_that_do_not_fit),
};

int main(int argc, char **argv)
{
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
