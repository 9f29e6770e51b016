/* SPDX-License-Identifier: Apache-2.0 */
#include "alignment.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "residency.h"

/* Linux 6.1; absent from the headers of older C libraries, and so are the fields. */
#define ASK_ALIGNMENT 0x2000u

struct statx_reply {
    uint32_t mask;
    uint32_t unused[37];
    uint32_t memory_align;
    uint32_t offset_align;
    uint32_t more[24];
};

_Static_assert(sizeof(struct statx_reply) == 256, "struct statx of the kernel");
_Static_assert(offsetof(struct statx_reply, memory_align) == 0x98, "stx_dio_mem_align");

/* 1 = known, 0 = the kernel or the file system does not tell, or -errno. */
static int ask(int fd, struct pt_alignment *alignment)
{
    struct statx_reply reply = {0};

    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, ASK_ALIGNMENT, &reply) < 0)
        return errno == ENOSYS || errno == EINVAL ? 0 : -errno;
    if (!(reply.mask & ASK_ALIGNMENT))
        return 0;
    if (reply.offset_align == 0 || reply.memory_align == 0)
        return -EOPNOTSUPP;
    *alignment = (struct pt_alignment){reply.offset_align, reply.memory_align};
    return 1;
}

/* A block of the wrong size is refused with EINVAL before anything is read. */
static int try(int fd, struct pt_alignment *alignment)
{
    static const uint32_t candidates[] = {512, 4096, 65536};
    void *buffer;
    int result = -EOPNOTSUPP;

    if (posix_memalign(&buffer, candidates[2], candidates[2]) != 0)
        return -ENOMEM;
    for (int i = 0; i < 3 && result == -EOPNOTSUPP; i++) {
        if (pread(fd, buffer, candidates[i], candidates[i]) >= 0) {
            *alignment = (struct pt_alignment){candidates[i], candidates[i]};
            result = 0;
        } else if (errno != EINVAL) {
            result = -errno;
        }
    }
    free(buffer);
    return result;
}

int pt_alignment_of(int fd, struct pt_alignment *alignment)
{
    int known = ask(fd, alignment);

    if (known != 0)
        return known < 0 ? known : 0;
    return try(fd, alignment);
}
