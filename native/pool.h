/* SPDX-License-Identifier: Apache-2.0 */
/* Where the bytes of every expert lie, and how a failure is told. Error currency: 0 or -errno; where
 * a file is to blame, struct pt_fault says which one, where, and in which call. */
#ifndef PAGETIER_POOL_H
#define PAGETIER_POOL_H

#include <stdint.h>

/* In pt_fault.file and pt_fault.expert: none is to blame. */
#define PT_NONE 4294967295

struct pt_extent {
    uint32_t file;
    uint64_t offset;
    uint64_t length;
};

/* What a path must lead to: st_dev and st_ino. */
struct pt_identity {
    uint64_t device;
    uint64_t inode;
};

/* Expert e is read from extents[expert_start[e] .. expert_start[e + 1]). */
struct pt_pool {
    const char *const *paths;
    const struct pt_identity *identities; /* of each file; NULL: whatever lies there */
    uint32_t num_files;
    const struct pt_extent *extents;
    uint64_t num_extents;
    const uint64_t *expert_start;
    uint32_t num_experts;
};

struct pt_fault {
    char call[24]; /* "open", "pread", "memcpy", "verify", ...; for -EINVAL the array that is wrong */
    uint32_t file;   /* or PT_NONE */
    uint32_t expert; /* or PT_NONE */
    uint64_t offset; /* byte in the file; for -EINVAL the index in the array */
};

/* Fills in where a failure happened, and returns it. */
int pt_fail(struct pt_fault *fault, int result, const char *call, uint32_t file, uint64_t offset);
/* -EINVAL: an array of the pool is not what this header says. */
int pt_pool_check(const struct pt_pool *pool, struct pt_fault *fault);
uint64_t pt_pool_expert_bytes(const struct pt_pool *pool, uint32_t expert);
/* The largest expert, or -EINVAL where the lengths of one do not add up to a size. */
int pt_pool_largest_expert(const struct pt_pool *pool, uint64_t *bytes, struct pt_fault *fault);

#endif
