/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGETIER_THREADS_H
#define PAGETIER_THREADS_H

#include <pthread.h>

/* A thread that takes no signals but those of its own faults: signals to the process are for the
 * caller's threads.  0 or -errno. */
int pt_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

#endif
