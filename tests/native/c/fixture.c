/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "arena.h"
#include "content.h"
#include "residency.h"

_Atomic int injection;
_Atomic unsigned calls;
_Atomic unsigned held_call;
_Atomic int release_held;
_Atomic int locks_left;
_Atomic int hints_left;
_Atomic unsigned hints_given;
_Atomic int hold_hints;
_Atomic int hinting_class;
_Atomic int refuse_direct;
_Atomic long clock_step_ns;
_Atomic unsigned naps;
_Atomic unsigned single_wakes;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_pread(int fd, void *buffer, size_t length, off_t offset);
ssize_t __real_preadv2(int fd, const struct iovec *pieces, int count, off_t offset, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *pieces, int count, off_t offset, int flags);
int __wrap_mlock(const void *start, size_t length);
int __real_posix_fadvise(int fd, off_t offset, off_t length, int advice);
int __wrap_posix_fadvise(int fd, off_t offset, off_t length, int advice);
int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

void pause_ms(long ms)
{
    struct timespec time = {0, ms * 1000000};

    nanosleep(&time, NULL);
}

/* How many bytes to ask for in this call, or -1 with errno set. */
static ssize_t disturbed(size_t length)
{
    unsigned call = atomic_fetch_add(&calls, 1);
    int kind = atomic_load(&injection);

    if ((kind == INTERRUPTED && call % 3 != 0) || (kind == DEVICE_ERROR && call == 57)) {
        errno = kind == INTERRUPTED ? EINTR : EIO;
        return -1;
    }
    while (kind == HELD && call == atomic_load(&held_call) && !atomic_load(&release_held))
        pause_ms(1);
    if (kind != SHORT_READS)
        return (ssize_t)length;
    return (ssize_t)(1 + call * 7919 % (length < 20000 ? length : 20000));
}

/* O_DIRECT reads whole blocks only: of a size that divides what was asked for. */
static size_t as_blocks(int fd, size_t length, size_t wanted)
{
    size_t block = length & -length;

    if (!(fcntl(fd, F_GETFL) & O_DIRECT))
        return wanted;
    if (block > 4096)
        block = 4096;
    return (wanted + block - 1) / block * block;
}

ssize_t __wrap_pread(int fd, void *buffer, size_t length, off_t offset)
{
    ssize_t some = disturbed(length);

    return some < 0 ? some : __real_pread(fd, buffer, as_blocks(fd, length, (size_t)some), offset);
}

ssize_t __wrap_preadv2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    ssize_t some = disturbed(pieces->iov_len);
    struct iovec piece = {pieces->iov_base, (size_t)some};

    return some < 0 ? some : __real_preadv2(fd, &piece, count, offset, flags);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list more;

    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (flags & O_DIRECT && atomic_load(&refuse_direct)) {
        errno = EINVAL;
        return -1;
    }
    return __real_open(path, flags, mode);
}

int __wrap_mlock(const void *start, size_t length)
{
    if (atomic_load(&locks_left) == 0) {
        errno = ENOMEM;
        return -1;
    }
    atomic_fetch_sub(&locks_left, 1);
    /* Not by the library: sanitizers make its mlock do nothing. */
    return (int)__real_syscall(SYS_mlock, start, length);
}

int __wrap_posix_fadvise(int fd, off_t offset, off_t length, int advice)
{
    if (advice == POSIX_FADV_WILLNEED) {
        atomic_store(&hinting_class, sched_getscheduler(0));
        atomic_fetch_add(&hints_given, 1);
        if (atomic_load(&hints_left) == 0)
            return EIO;
        atomic_fetch_sub(&hints_left, 1);
        while (atomic_load(&hold_hints))
            pause_ms(1);
    }
    return __real_posix_fadvise(fd, offset, length, advice);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    static _Atomic long now_ns;
    long step = atomic_load(&clock_step_ns);

    if (step < 0)
        return __real_clock_gettime(clock, time);
    long now = atomic_fetch_add(&now_ns, step);
    *time = (struct timespec){now / 1000000000, now % 1000000000};
    return 0;
}

static void note_futex(long operation, long threads, long timeout)
{
    if (operation == FUTEX_WAKE_PRIVATE && threads == 1)
        atomic_fetch_add(&single_wakes, 1);
    if (operation == FUTEX_WAIT_PRIVATE && timeout != 0)
        atomic_fetch_add(&naps, 1);
}

/* Of the raw calls of the core: futex, statx, cachestat. */
static int count_arguments(long number)
{
    if (number == SYS_futex)
        return 6;
    return number == SYS_statx ? 5 : 4;
}

long __wrap_syscall(long number, ...)
{
    long a[6] = {0};
    va_list more;

    va_start(more, number);
    for (int i = 0; i < count_arguments(number); i++)
        a[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_futex)
        note_futex((int)a[1], (int)a[2], a[3]);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void make_file(struct fixture *f, uint32_t expert)
{
    uint64_t written = 0;
    int cancel = 0;

    snprintf(f->paths_text[expert], sizeof f->paths_text[expert], "%s/%u", f->directory, expert);
    f->paths[expert] = f->paths_text[expert];
    int fd = open(f->paths[expert], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK(pt_content_write(fd, 3, EXPERT_BYTES, SEED, expert, &written, &cancel) == 0);
    CHECK(written == EXPERT_BYTES);
    close(fd);
}

static void make_pool(struct fixture *f)
{
    for (uint32_t e = 0; e < EXPERTS; e++) {
        make_file(f, e);
        /* In two pieces, cut where no word and no page is. */
        uint64_t first = 4099 + 1000 * e;
        f->extents[2 * e] = (struct pt_extent){e, 3, first};
        f->extents[2 * e + 1] = (struct pt_extent){e, 3 + first, EXPERT_BYTES - first};
        f->expert_start[e + 1] = 2 * (e + 1);
    }
    f->pool = (struct pt_pool){
        .paths = f->paths,
        .num_files = EXPERTS,
        .extents = f->extents,
        .num_extents = 2 * EXPERTS,
        .expert_start = f->expert_start,
        .num_experts = EXPERTS,
    };
}

static void make_plan(struct fixture *f)
{
    for (uint32_t i = 0; i < READS; i++)
        f->experts[i] = i * 7 % EXPERTS;
    for (uint32_t r = 0; r <= RECORDS; r++)
        f->record_start[r] = r * WIDTH;
    for (uint32_t i = 0; i <= ITERATIONS; i++)
        f->iteration_start[i] = i * (RECORDS / ITERATIONS);
    /* An empty iteration, with an empty record in the next one. */
    f->iteration_start[5] = f->iteration_start[4];
    f->record_start[f->iteration_start[5] + 1] = f->record_start[f->iteration_start[5]];
    f->plan = (struct pt_plan){f->experts, READS, f->record_start, f->iteration_start, RECORDS,
                               ITERATIONS};
}

static void make_hints(struct fixture *f)
{
    for (uint32_t r = 0; r < RECORDS; r++)
        f->hint_start[r] = f->record_start[r + 1] - f->record_start[1];
    f->hint_start[RECORDS] = READS - f->record_start[1];
    f->hints = (struct pt_hints){f->hint_start, f->experts + f->record_start[1],
                                 READS - f->record_start[1]};
}

static void make_pass(struct fixture *f)
{
    f->pass = (struct pt_pass){
        .iteration_end_ns = f->ends,
        .sums = &f->sums[0][0],
        .latency_histogram = f->histogram,
        .verify_every = 1,
        .content_seed = SEED,
    };
}

struct fixture *setup(const char *directory)
{
    struct fixture *f = calloc(1, sizeof *f);

    CHECK(f);
    snprintf(f->directory, sizeof f->directory, "%s", directory);
    make_pool(f);
    make_plan(f);
    make_hints(f);
    make_pass(f);
    f->options = (struct pt_options){.threads = 4, .max_descriptors = 4 * EXPERTS, .max_hint_descriptors = EXPERTS};
    atomic_store(&injection, NONE);
    atomic_store(&calls, 0);
    atomic_store(&held_call, 0);
    atomic_store(&release_held, 0);
    atomic_store(&locks_left, -1);
    atomic_store(&hints_left, -1);
    atomic_store(&hints_given, 0);
    atomic_store(&hold_hints, 0);
    atomic_store(&refuse_direct, 0);
    atomic_store(&clock_step_ns, -1);
    atomic_store(&naps, 0);
    atomic_store(&single_wakes, 0);
    return f;
}

void open_reader(struct fixture *f)
{
    CHECK(pt_reader_open(&f->pool, &f->options, f->arena, &f->reader, &f->fault) == 0);
}

int replay(struct fixture *f)
{
    const struct pt_hints *hints = f->options.delivery ? &f->hints : NULL;

    return pt_reader_replay(f->reader, &f->plan, hints, &f->pass, &f->fault);
}

void close_reader(struct fixture *f)
{
    pt_reader_close(f->reader);
    f->reader = NULL;
}

void teardown(struct fixture *f)
{
    if (f->reader)
        pt_reader_close(f->reader);
    if (f->arena)
        pt_arena_close(f->arena);
    for (uint32_t e = 0; e < EXPERTS; e++)
        unlink(f->paths[e]);
    free(f);
}

void check_complete(const struct fixture *f)
{
    uint64_t reads = 0;
    uint64_t bytes = 0;
    uint64_t latencies = 0;
    uint64_t end = f->pass.start_ns;

    for (uint32_t i = 0; i < ITERATIONS; i++) {
        CHECK(f->ends[i] >= end);
        CHECK(f->sums[PT_BYTES][i] == f->sums[PT_READS][i] * EXPERT_BYTES);
        end = f->ends[i];
        reads += f->sums[PT_READS][i];
        bytes += f->sums[PT_BYTES][i];
    }
    for (uint32_t b = 0; b < PT_HISTOGRAM_BUCKETS; b++)
        latencies += f->histogram[b];
    CHECK(f->sums[PT_READS][4] == 0);
    CHECK(f->ends[4] == f->ends[3]);
    CHECK(reads == READS && latencies == READS && f->pass.verified_reads == READS);
    CHECK(bytes == (uint64_t)READS * EXPERT_BYTES);
}

uint64_t sum(const uint64_t *column)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < ITERATIONS; i++)
        total += column[i];
    return total;
}

void evict(const struct fixture *f)
{
    for (uint32_t e = 0; e < EXPERTS; e++) {
        int fd = open(f->paths[e], O_RDONLY | O_CLOEXEC);

        CHECK(fd >= 0);
        fsync(fd);
        CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        close(fd);
    }
}

uint64_t resident_pages(const struct fixture *f)
{
    uint64_t pages = 0;

    for (uint32_t e = 0; e < EXPERTS; e++) {
        int fd = open(f->paths[e], O_RDONLY | O_CLOEXEC);
        int64_t found = pt_mincore_pages(fd, 0, 3 + EXPERT_BYTES);

        CHECK(fd >= 0 && found >= 0);
        pages += (uint64_t)found;
        close(fd);
    }
    return pages;
}

int run_tests(const struct test *tests, size_t count, int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    alarm(300); /* a hang is a failure too */
    for (size_t i = 0; i < count; i++) {
        fprintf(stderr, "%s\n", tests[i].name);
        tests[i].run(argv[1]);
    }
    printf("%zu passed\n", count);
    return 0;
}
