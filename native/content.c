/* SPDX-License-Identifier: Apache-2.0 */
/* Content is a stream of 64-bit little-endian words, one splitmix64 output per word, started at a
 * point that depends on (seed, expert): any word can be computed alone, from its index. */
#include "content.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN_GAMMA UINT64_C(0x9e3779b97f4a7c15)
#define WORD sizeof(uint64_t)
/* Words compared before a look at the result: keeps the loop free of branches. */
#define BLOCK_WORDS 64
/* Large enough to make the cost of a call vanish, small enough to stay in a second-level cache. */
#define CHUNK_BYTES ((size_t)256 * 1024)

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t stream_start(uint64_t seed, uint32_t expert)
{
    return mix(mix(seed + GOLDEN_GAMMA) + GOLDEN_GAMMA * ((uint64_t)expert + 1));
}

static inline uint64_t word_at(uint64_t start, uint64_t index)
{
    return htole64(mix(start + GOLDEN_GAMMA * (index + 1)));
}

/* Bytes [offset, offset + length) of the stream, all within one word. */
static void fill_within_word(unsigned char *out, size_t length, uint64_t start, uint64_t offset)
{
    uint64_t word = word_at(start, offset / WORD);

    memcpy(out, (const unsigned char *)&word + offset % WORD, length);
}

static size_t bytes_to_word_boundary(uint64_t offset, size_t length)
{
    size_t head = (WORD - offset % WORD) % WORD;

    return head < length ? head : length;
}

void pt_content_fill(void *buffer, size_t length, uint64_t seed, uint32_t expert, uint64_t offset)
{
    unsigned char *out = buffer;
    uint64_t start = stream_start(seed, expert);
    size_t head = bytes_to_word_boundary(offset, length);

    fill_within_word(out, head, start, offset);
    out += head;
    length -= head;
    uint64_t index = (offset + head) / WORD;
    size_t words = length / WORD;

    for (size_t i = 0; i < words; i++) {
        uint64_t word = word_at(start, index + i);

        memcpy(out + i * WORD, &word, WORD);
    }
    fill_within_word(out + words * WORD, length % WORD, start, (index + words) * WORD);
}

static size_t mismatch_bytes(const unsigned char *in, size_t length, uint64_t start,
                             uint64_t offset)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char expected;

        fill_within_word(&expected, 1, start, offset + i);
        if (in[i] != expected)
            return i;
    }
    return length;
}

static uint64_t block_difference(const unsigned char *in, uint64_t start, uint64_t index)
{
    uint64_t difference = 0;

    for (size_t i = 0; i < BLOCK_WORDS; i++) {
        uint64_t word;

        memcpy(&word, in + i * WORD, WORD);
        difference |= word ^ word_at(start, index + i);
    }
    return difference;
}

size_t pt_content_mismatch(const void *buffer, size_t length, uint64_t seed, uint32_t expert,
                           uint64_t offset)
{
    const size_t block = BLOCK_WORDS * WORD;
    const unsigned char *in = buffer;
    uint64_t start = stream_start(seed, expert);
    size_t at = bytes_to_word_boundary(offset, length);

    size_t head_agrees = mismatch_bytes(in, at, start, offset);
    if (head_agrees < at)
        return head_agrees;
    while (length - at >= block && !block_difference(in + at, start, (offset + at) / WORD))
        at += block;
    /* Either the tail, or the block that differs: the rest is at most read to its first error. */
    return at + mismatch_bytes(in + at, length - at, start, offset + at);
}

static int write_whole(int fd, const unsigned char *bytes, size_t length, uint64_t file_offset)
{
    while (length > 0) {
        ssize_t done = pwrite(fd, bytes, length, (off_t)file_offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        if (done == 0)
            return -EIO;
        bytes += done;
        file_offset += (uint64_t)done;
        length -= (size_t)done;
    }
    return 0;
}

/* -ENODATA where the file ends too early. */
static int read_whole(int fd, unsigned char *bytes, size_t length, uint64_t file_offset)
{
    while (length > 0) {
        ssize_t done = pread(fd, bytes, length, (off_t)file_offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        if (done == 0)
            return -ENODATA;
        bytes += done;
        file_offset += (uint64_t)done;
        length -= (size_t)done;
    }
    return 0;
}

static size_t chunk_of(uint64_t rest)
{
    return rest < CHUNK_BYTES ? (size_t)rest : CHUNK_BYTES;
}

int pt_content_write(int fd, uint64_t file_offset, uint64_t length, uint64_t seed, uint32_t expert,
                     uint64_t *written, const int *cancel)
{
    unsigned char *chunk = malloc(CHUNK_BYTES);
    int result = 0;

    if (!chunk)
        return -ENOMEM;
    for (uint64_t at = 0; at < length && result == 0;) {
        size_t size = chunk_of(length - at);

        if (__atomic_load_n(cancel, __ATOMIC_RELAXED)) {
            result = -ECANCELED;
            break;
        }
        pt_content_fill(chunk, size, seed, expert, at);
        result = write_whole(fd, chunk, size, file_offset + at);
        if (result == 0)
            __atomic_add_fetch(written, size, __ATOMIC_RELAXED);
        at += size;
    }
    free(chunk);
    return result;
}

int pt_content_verify(int fd, uint64_t file_offset, uint64_t length, uint64_t seed, uint32_t expert,
                      uint64_t *mismatch)
{
    unsigned char *chunk = malloc(CHUNK_BYTES);
    int result = 0;

    if (!chunk)
        return -ENOMEM;
    for (uint64_t at = 0; at < length && result == 0;) {
        size_t size = chunk_of(length - at);

        result = read_whole(fd, chunk, size, file_offset + at);
        if (result < 0)
            break;
        size_t agrees = pt_content_mismatch(chunk, size, seed, expert, at);
        if (agrees < size) {
            *mismatch = at + agrees;
            result = -EILSEQ;
        }
        at += size;
    }
    free(chunk);
    return result;
}
