# SPDX-License-Identifier: Apache-2.0
"""Memory per NUMA node: page cache stays on the node of the thread that first read it.

A node without CPUs is memory of another kind (on GH200 the GPU's), which a capacity should not
count.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_line, read_text
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count

__all__ = ["Node", "node_folders", "parse_node_meminfo", "read_nodes"]

_LINE = re.compile(r"Node\s+\d+\s+([^:]+):\s+(\S+)(?:\s+(kB))?\s*")


@dataclass(frozen=True, slots=True)
class Node:
    """One node; `cpus` is the kernel's list, empty for a node of memory alone."""

    index: int
    cpus: str
    total_bytes: int
    free_bytes: int
    file_bytes: int

    @property
    def has_cpus(self) -> bool:
        """Whether any CPU is near this memory."""
        return bool(self.cpus)


def parse_node_meminfo(text: str, *, where: str = "nodeN/meminfo") -> dict[str, int]:
    """Fields in bytes, except the HugePages_ counts, which are pages and carry no unit."""
    values: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ParseError(where, number, f"{line[:60]!r} is not `Node N Name: number kB`")
        name, count, unit = match.groups()
        values[name] = parse_count(count, where, number, name) * (1024 if unit else 1)
    return values


def node_folders(sys: Path) -> dict[int, Path]:
    """The kernel's folder of each node, in order; empty on a kernel without NUMA."""
    folders = (sys / "devices/system/node").glob("node*")
    return dict(sorted((int(path.name[4:]), path) for path in folders if path.name[4:].isdecimal()))


def read_nodes(sys: Path) -> tuple[Node, ...]:
    """The nodes of this host in order; empty on a kernel without NUMA."""
    found = [_node(index, folder) for index, folder in node_folders(sys).items()]
    return tuple(node for node in found if node is not None)


def _node(index: int, folder: Path) -> Node | None:
    path = folder / "meminfo"
    text = read_text(path)
    if text is None:
        return None
    values = parse_node_meminfo(text, where=str(path))
    for name in ("MemTotal", "MemFree", "FilePages"):
        if name not in values:
            raise ParseError(str(path), None, f"no line {name!r}")
    return Node(
        index=index,
        cpus=read_line(folder / "cpulist") or "",
        total_bytes=values["MemTotal"],
        free_bytes=values["MemFree"],
        file_bytes=values["FilePages"],
    )
