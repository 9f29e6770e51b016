# SPDX-License-Identifier: Apache-2.0
"""cffi builder of ``pagetier.native._core``: the headers are the interface, word for word."""

import re
from pathlib import Path

from cffi import FFI

# setup.py runs in the repository root and cffi keeps source paths relative to it.
SOURCE_DIR = Path("native")
HEADERS = (
    "pool.h",
    "arena.h",
    "content.h",
    "digest.h",
    "histogram.h",
    "process.h",
    "reader.h",
    "residency.h",
    "routes.h",
    "sim.h",
)
PRIVATE_HEADERS = (
    "alignment.h",
    "check.h",
    "clock.h",
    "delivery.h",
    "files.h",
    "futex.h",
    "prefetch.h",
    "preload.h",
    "schedule.h",
    "sigbus.h",
    "sim_bitset.h",
    "sim_counts.h",
    "sim_list.h",
    "sim_policy.h",
    "source.h",
    "threads.h",
    "worker.h",
)
SOURCES = (
    "alignment.c",
    "arena.c",
    "content.c",
    "delivery.c",
    "digest.c",
    "files.c",
    "histogram.c",
    "pool.c",
    "prefetch.c",
    "preload.c",
    "process.c",
    "reader.c",
    "residency.c",
    "routes.c",
    "schedule.c",
    "sigbus.c",
    "sim.c",
    "sim_arc.c",
    "sim_belady.c",
    "sim_belady_distance.c",
    "sim_counts.c",
    "sim_least_stale.c",
    "sim_lfru.c",
    "sim_lfu.c",
    "sim_lru.c",
    "sim_lru_distance.c",
    "sim_s3fifo.c",
    "sim_sieve.c",
    "source.c",
    "source_direct.c",
    "source_dontcache.c",
    "source_drop_behind.c",
    "source_mmap.c",
    "source_populate.c",
    "source_pread.c",
    "threads.c",
    "worker.c",
)


def declarations(header: str) -> str:
    """A header as cffi wants it: no preprocessor lines but plain numeric defines."""
    lines = []
    for line in header.splitlines():
        if not line.startswith("#") or re.fullmatch(r"#define \w+ \d+", line):
            lines.append(line)
    return "\n".join(lines)


ffibuilder = FFI()
for name in HEADERS:
    ffibuilder.cdef(declarations((SOURCE_DIR / name).read_text()))
ffibuilder.set_source(
    "pagetier.native._core",
    "\n".join(f'#include "{name}"' for name in HEADERS),
    sources=[str(SOURCE_DIR / name) for name in SOURCES],
    depends=[str(SOURCE_DIR / name) for name in HEADERS + PRIVATE_HEADERS],
    include_dirs=[str(SOURCE_DIR)],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-Wall", "-Wextra", "-pthread"],
    extra_link_args=["-pthread"],
    py_limited_api=True,
)
