/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with the arrays of a caller: -EINVAL, naming the array and the index. */
#ifndef PAGETIER_CHECK_H
#define PAGETIER_CHECK_H

#include <stdint.h>

#include "pool.h"

int pt_invalid(struct pt_fault *fault, const char *array, uint64_t index);
/* `bounds` has `count` + 1 entries: from 0 to `end`, never falling. */
int pt_check_bounds(const uint64_t *bounds, uint64_t count, uint64_t end, const char *array,
                    struct pt_fault *fault);

#endif
