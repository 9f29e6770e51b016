# SPDX-License-Identifier: Apache-2.0
"""cffi builder of ``pagetier.native._core``: the headers are the interface, word for word."""

import re
from pathlib import Path

from cffi import FFI

# setup.py runs in the repository root and cffi keeps source paths relative to it.
SOURCE_DIR = Path("native")
HEADERS = ("content.h", "histogram.h", "process.h", "reader.h", "residency.h")
PRIVATE_HEADERS = ("files.h", "futex.h", "schedule.h", "sigbus.h")
SOURCES = (
    "content.c",
    "files.c",
    "histogram.c",
    "process.c",
    "reader.c",
    "residency.c",
    "schedule.c",
    "sigbus.c",
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
