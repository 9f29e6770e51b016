/* SPDX-License-Identifier: Apache-2.0 */
#include "sigbus.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

struct guard {
    sigjmp_buf escape;
    uintptr_t start;
    uintptr_t end;
    uintptr_t fault_at;
};

/* initial-exec: the handler must not allocate, as the first touch of a lazy one would. */
static _Thread_local struct guard *volatile guard __attribute__((tls_model("initial-exec")));

static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct sigaction previous;

static void pass_on(int signal_number, siginfo_t *info, void *context)
{
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal_number, info, context);
        return;
    }
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal_number);
        return;
    }
    /* A fault cannot be ignored: it happens again at once, and then ends the process. */
    signal(SIGBUS, SIG_DFL);
    if (info->si_code <= 0)
        raise(SIGBUS);
}

static void on_sigbus(int signal_number, siginfo_t *info, void *context)
{
    struct guard *mine = guard;
    uintptr_t address = (uintptr_t)info->si_addr;

    if (!mine || info->si_code <= 0 || address < mine->start || address >= mine->end) {
        pass_on(signal_number, info, context);
        return;
    }
    mine->fault_at = address;
    siglongjmp(mine->escape, 1);
}

int pt_sigbus_begin(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    int result = 0;

    pthread_mutex_lock(&users_lock);
    if (users == 0 && sigaction(SIGBUS, &action, &previous) < 0)
        result = -errno;
    else
        users++;
    pthread_mutex_unlock(&users_lock);
    return result;
}

void pt_sigbus_end(void)
{
    struct sigaction current;

    pthread_mutex_lock(&users_lock);
    users--;
    /* Someone who came after us keeps their handler. */
    if (users == 0 && sigaction(SIGBUS, NULL, &current) == 0 && (current.sa_flags & SA_SIGINFO) &&
        current.sa_sigaction == on_sigbus)
        sigaction(SIGBUS, &previous, NULL);
    pthread_mutex_unlock(&users_lock);
}

/* The handler's jump leaves SIGBUS blocked: a mask restored here costs a call per fault, one saved
 * by sigsetjmp would cost a call per copy. */
static void unblock_sigbus(void)
{
    sigset_t sigbus;

    sigemptyset(&sigbus);
    sigaddset(&sigbus, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &sigbus, NULL);
}

int pt_sigbus_copy(void *into, const void *from, size_t length, const void **fault_at)
{
    struct guard mine = {.start = (uintptr_t)from, .end = (uintptr_t)from + length};

    if (sigsetjmp(mine.escape, 0)) {
        guard = NULL;
        unblock_sigbus();
        *fault_at = (const void *)mine.fault_at;
        return -EFAULT;
    }
    guard = &mine;
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(into, from, length);
    atomic_signal_fence(memory_order_seq_cst);
    guard = NULL;
    return 0;
}
