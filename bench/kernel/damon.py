# SPDX-License-Identifier: Apache-2.0
"""Proactive reclaim by DAMON: what evicts idle page cache without any pressure.

Its evictions show in no kswapd or direct counter, so a long warm-up loses pages that nobody can
account for.  Found here and recorded, never stopped.  Reclaim that a user-space program asks for
through memory.reclaim leaves no standing trace and cannot be found this way.
"""

from dataclasses import dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_line, read_text
from pagetier.cgroups.errors import ParseError

__all__ = ["Kdamond", "ProactiveReclaim", "parse_switch", "read_proactive_reclaim"]

# Actions that take pages away (mm/damon: DAMOS_PAGEOUT, DAMOS_COLD only sorts, so it is not here).
_EVICTING = frozenset({"pageout"})


@dataclass(frozen=True, slots=True)
class Kdamond:
    """One DAMON thread: its state (`on`, `off`) and the actions of its schemes."""

    index: int
    state: str
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProactiveReclaim:
    """DAMON as found; damon_reclaim is None where the module is not there."""

    kdamonds: tuple[Kdamond, ...]
    damon_reclaim: bool | None

    @property
    def running(self) -> tuple[str, ...]:
        """What is evicting right now, one phrase each; empty when nothing was found."""
        found = [
            f"DAMON kdamond {kdamond.index} with scheme action {action}"
            for kdamond in self.kdamonds
            if kdamond.state == "on"
            for action in kdamond.actions
            if action in _EVICTING
        ]
        return (*found, *(("damon_reclaim",) if self.damon_reclaim else ()))


def parse_switch(text: str, *, where: str) -> bool:
    """A module parameter of type bool: the kernel prints Y or N."""
    word = text.strip()
    if word not in {"Y", "N"}:
        raise ParseError(where, 1, f"switch is {word[:40]!r}, neither Y nor N")
    return word == "Y"


def read_proactive_reclaim(sys: Path) -> ProactiveReclaim:
    """All DAMON threads of the running kernel and the built-in damon_reclaim."""
    base = sys / "kernel/mm/damon/admin/kdamonds"
    found = [_kdamond(folder) for folder in _numbered(base)]
    switch = sys / "module/damon_reclaim/parameters/enabled"
    text = read_text(switch)
    return ProactiveReclaim(
        kdamonds=tuple(kdamond for kdamond in found if kdamond is not None),
        damon_reclaim=None if text is None else parse_switch(text, where=str(switch)),
    )


def _kdamond(folder: Path) -> Kdamond | None:
    state = read_line(folder / "state")
    if state is None:
        return None
    actions = [
        action
        for context in _numbered(folder / "contexts")
        for scheme in _numbered(context / "schemes")
        if (action := read_line(scheme / "action")) is not None
    ]
    return Kdamond(index=int(folder.name), state=state, actions=tuple(actions))


def _numbered(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("*") if path.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name))
