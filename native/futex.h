/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping on a 32-bit word of this process. */
#ifndef PAGETIER_FUTEX_H
#define PAGETIER_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Returns when woken, when the word is no longer `seen`, or for no reason: look again. */
static inline void pt_futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

/* The same, but no longer than this: less than a second. */
static inline void pt_futex_wait_for(_Atomic uint32_t *word, uint32_t seen, long nanoseconds)
{
    const struct timespec time = {0, nanoseconds};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &time, NULL, 0);
}

static inline void pt_futex_wake(_Atomic uint32_t *word, uint32_t threads)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

#endif
