/* SPDX-License-Identifier: Apache-2.0 */
/* A copy out of a mapped file that survives the file's end and the device's errors: the kernel
 * reports both by SIGBUS, which ends the process unless it is caught. */
#ifndef PAGETIER_SIGBUS_H
#define PAGETIER_SIGBUS_H

#include <stddef.h>

/* Catch SIGBUS in this process from the first begin to the last end; other faults than those of
 * guarded copies go where they went before. */
int pt_sigbus_begin(void);
void pt_sigbus_end(void);
/* 0, or -EFAULT with *fault_at set to the address that could not be read. */
int pt_sigbus_copy(void *into, const void *from, size_t length, const void **fault_at);

#endif
