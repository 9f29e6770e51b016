# SPDX-License-Identifier: Apache-2.0
"""/sys/kernel/debug/lru_gen: the generations of the multi-generational LRU, oldest first.

Counts are pages, ages milliseconds since a generation was opened.  The file exists since 6.1, needs
root, a mounted debugfs and no lockdown; it lists every memory cgroup of the host, so a reader names
the ones it wants.  lru_gen_seq_show in mm/vmscan.c prints it; its sibling lru_gen_full has lines of
statistics between the generations, which are passed over.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pagetier.bench.kernel.text import HeldFile
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count

__all__ = ["Generation", "GenerationReader", "MemcgGenerations", "NodeGenerations", "parse_lru_gen"]

ROOT = "/"

# Generations are printed as ` %10lu ...`, so at most ten blanks lead; the lines of statistics begin
# with a field of twelve (tiers) or twenty-two (page table walks) blanks.
_STATISTICS = " " * 12
_COLUMNS = ("generation", "age_ms", "anon_pages", "file_pages")


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation; each type's pages are counted apart, though they share the number."""

    seq: int
    age_ms: int
    anon_pages: int
    file_pages: int


@dataclass(frozen=True, slots=True)
class NodeGenerations:
    """The generations of a memory cgroup on one NUMA node."""

    node: int
    generations: tuple[Generation, ...]


@dataclass(frozen=True, slots=True)
class MemcgGenerations:
    """A memory cgroup by the kernel's id and its path in the hierarchy, `/` for the root."""

    memcg_id: int
    path: str
    nodes: tuple[NodeGenerations, ...]

    def as_dict(self) -> dict[str, Any]:
        """As it stands in a snapshot."""
        return {"memcg": self.path, "nodes": [_node_dict(node) for node in self.nodes]}


def _node_dict(node: NodeGenerations) -> dict[str, Any]:
    generations = [
        {
            "seq": generation.seq,
            "age_ms": generation.age_ms,
            "anon_pages": generation.anon_pages,
            "file_pages": generation.file_pages,
        }
        for generation in node.generations
    ]
    return {"node": node.node, "generations": generations}


@dataclass(slots=True)
class _Open:
    # The memory cgroup whose lines are being read.
    memcg_id: int
    path: str
    nodes: list[tuple[int, list[Generation]]]

    def closed(self) -> MemcgGenerations:
        nodes = tuple(NodeGenerations(number, tuple(found)) for number, found in self.nodes)
        return MemcgGenerations(self.memcg_id, self.path, nodes)


def parse_lru_gen(
    text: str,
    *,
    wanted: Callable[[str], bool] = lambda _: True,
    where: str = "/sys/kernel/debug/lru_gen",
) -> tuple[MemcgGenerations, ...]:
    """The memory cgroups whose path is `wanted`; the lines of the others are not looked into."""
    return tuple(memcg.closed() for memcg in _memcgs(text, where, wanted))


def _memcgs(text: str, where: str, wanted: Callable[[str], bool]) -> Iterator[_Open]:
    current: _Open | None = None
    skipping = False
    # Names of cgroups may hold what str.splitlines takes for the end of a line, but no newline.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("memcg "):
            if current is not None:
                yield current
            current = _open_memcg(line, where, number)
            skipping = not wanted(current.path)
            current = None if skipping else current
        elif line and not skipping:
            _add_line(current, line, where, number)
    if current is not None:
        yield current


def _open_memcg(line: str, where: str, number: int) -> _Open:
    fields = line.split(maxsplit=1)[1:]
    identity, _, path = fields[0].partition(" ") if fields else ("", "", "")
    # A kernel without memory cgroups prints its only list under an empty path.
    return _Open(parse_count(identity, where, number, "memcg id"), path or ROOT, [])


def _add_line(memcg: _Open | None, line: str, where: str, number: int) -> None:
    fields = line.split()
    if memcg is None:
        raise ParseError(where, number, f"{line.strip()[:60]!r} stands before any memcg")
    if fields[:1] == ["node"]:
        node = parse_count(" ".join(fields[1:]), where, number, "node")
        memcg.nodes.append((node, []))
    elif not line.startswith(_STATISTICS):
        if not memcg.nodes:
            raise ParseError(where, number, f"{line.strip()[:60]!r} stands before any node")
        memcg.nodes[-1][1].append(_generation(fields, where, number))


def _generation(fields: list[str], where: str, number: int) -> Generation:
    if len(fields) != len(_COLUMNS):
        raise ParseError(where, number, f"{len(fields)} columns, not {', '.join(_COLUMNS)}")
    # lru_gen_full marks a size with `x` where reclaim of that type has passed the generation.
    plain = [*fields[:2], *(field.removesuffix("x") for field in fields[2:])]
    values = [
        parse_count(field, where, number, name) for field, name in zip(plain, _COLUMNS, strict=True)
    ]
    return Generation(*values)


class GenerationReader:
    """Reads the root and the cgroup of one scope, found by its own name; a context manager.

    By name and not by path: inside of a cgroup namespace the start of the kernel's path is hidden,
    and the name of a scope is like no other.
    """

    def __init__(self, sys: Path, scope_name: str | None) -> None:
        self._scope_name = scope_name
        self._file = HeldFile(sys / "kernel/debug/lru_gen")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> tuple[MemcgGenerations, ...] | None:
        """The generations now; None where the kernel does not show them."""
        text = self._file.read()
        if text is None:
            return None
        return parse_lru_gen(text, wanted=self._is_wanted, where=str(self._file.path))

    def close(self) -> None:
        """Close the held file."""
        self._file.close()

    def _is_wanted(self, path: str) -> bool:
        return path == ROOT or path.rpartition("/")[2] == self._scope_name
