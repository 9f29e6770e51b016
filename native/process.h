/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGETIER_PROCESS_H
#define PAGETIER_PROCESS_H

/* Have the kernel kill this process when its parent dies, kill -9 included.  -ESRCH when the parent
 * is already another one than expected_parent. */
int pt_die_with_parent(int expected_parent);

#endif
