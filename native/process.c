/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int pt_die_with_parent(int expected_parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    /* The parent may have died before the call: no signal would ever come. */
    return getppid() == expected_parent ? 0 : -ESRCH;
}
