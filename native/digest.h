/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGETIER_DIGEST_H
#define PAGETIER_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), of a little-endian host. */
uint64_t pt_digest(const void *bytes, size_t length, uint64_t seed);

#endif
