/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping on a 32-bit word, for a class of events named by a set of bits. */
#ifndef PAGETIER_FUTEX_H
#define PAGETIER_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PT_FUTEX_ALL FUTEX_BITSET_MATCH_ANY

/* Returns when woken, when the word is no longer `seen`, or for no reason: look again. */
static inline void pt_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, NULL, NULL, bits);
}

static inline void pt_futex_wake(_Atomic uint32_t *word, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, bits);
}

#endif
