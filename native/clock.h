/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGETIER_CLOCK_H
#define PAGETIER_CLOCK_H

#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

/* CLOCK_MONOTONIC */
static inline uint64_t pt_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* CPU time of the calling thread so far. */
static inline void pt_thread_cpu(uint64_t *user_ns, uint64_t *system_ns)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    *user_ns = (uint64_t)usage.ru_utime.tv_sec * 1000000000u + (uint64_t)usage.ru_utime.tv_usec * 1000u;
    *system_ns =
        (uint64_t)usage.ru_stime.tv_sec * 1000000000u + (uint64_t)usage.ru_stime.tv_usec * 1000u;
}

#endif
