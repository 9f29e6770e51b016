/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of an arena: threads that do nothing but memcpy out of one locked region, each its own
 * share of an order made beforehand.  Usage: plain_memcpy REGION_BYTES BLOCK_BYTES THREADS < offsets
 * (64-bit, native); prints the nanoseconds of wall, user and system time that the copies took. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static unsigned char *region;
static size_t block_bytes;
static size_t num_threads;
static size_t num_copies;
static const int64_t *offsets;
static pthread_barrier_t start;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t timeval_ns(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static void *map(size_t bytes)
{
    void *start_of = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (start_of == MAP_FAILED)
        exit(1);
    return start_of;
}

static void *copy_share(void *argument)
{
    unsigned char *buffer = map(block_bytes);

    pthread_barrier_wait(&start);
    for (size_t i = (size_t)argument; i < num_copies; i += num_threads) {
        memcpy(buffer, region + offsets[i], block_bytes);
        /* The copy is wanted, whatever the compiler thinks. */
        __asm__ volatile("" : : "r"(buffer) : "memory");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct rusage before;
    struct rusage after;
    struct stat input;
    pthread_t thread[256];

    if (argc != 4 || fstat(0, &input) < 0)
        return 2;
    size_t region_bytes = strtoul(argv[1], NULL, 10);
    block_bytes = strtoul(argv[2], NULL, 10);
    num_threads = strtoul(argv[3], NULL, 10);
    num_copies = (size_t)input.st_size / sizeof *offsets;
    offsets = mmap(NULL, (size_t)input.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, 0, 0);
    if (offsets == MAP_FAILED || num_threads > 256)
        return 2;
    region = map(region_bytes);
    memset(region, 1, region_bytes); /* not the one page of zeros */
    if (mlock(region, region_bytes) < 0)
        return 1;
    pthread_barrier_init(&start, NULL, (unsigned)num_threads + 1);
    for (size_t i = 0; i < num_threads; i++)
        if (pthread_create(&thread[i], NULL, copy_share, (void *)i) != 0)
            return 1;
    getrusage(RUSAGE_SELF, &before); /* the threads have their buffers, or nearly so */
    pthread_barrier_wait(&start);
    uint64_t began = now_ns();
    for (size_t i = 0; i < num_threads; i++)
        pthread_join(thread[i], NULL);
    uint64_t wall_ns = now_ns() - began;
    getrusage(RUSAGE_SELF, &after);
    printf("%llu %llu %llu\n", (unsigned long long)wall_ns,
           (unsigned long long)(timeval_ns(after.ru_utime) - timeval_ns(before.ru_utime)),
           (unsigned long long)(timeval_ns(after.ru_stime) - timeval_ns(before.ru_stime)));
    return 0;
}
