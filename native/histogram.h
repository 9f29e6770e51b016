/* SPDX-License-Identifier: Apache-2.0 */
/* Log-linear histogram of durations: exact below 32 ns, then 32 buckets per octave, so that a
 * bucket is at most 1/32 = 3.1 % wide and its middle at most 1.6 % off. */
#ifndef PAGETIER_HISTOGRAM_H
#define PAGETIER_HISTOGRAM_H

#include <stdint.h>

#define PT_HISTOGRAM_BUCKETS 1920

/* Below PT_HISTOGRAM_BUCKETS for any value. */
uint32_t pt_histogram_bucket(uint64_t value);

#endif
