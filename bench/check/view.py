# SPDX-License-Identifier: Apache-2.0
"""How the check looks: a page for one look, a still view while it watches, a line in a log.

The live view repaints in place once per interval and only on a terminal, so that it is as calm over
ssh as it is here; into a pipe or a journal goes one line per interval.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pagetier.analysis.units import format_bytes

__all__ = ["line", "live", "page"]

_COLOURS = {"healthy": "green", "suspect": "yellow", "amplifying": "red", "unknown": "dim"}


def page(console: Console, document: Mapping[str, Any]) -> None:
    """One look in full; the mitigations stand there when there is something to mitigate."""

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    say(document["state"])
    for text in document["evidence"]:
        say(f"  {text}")
    for text in document["unseen"]:
        say(f"  not seen: {text}")
    for item in document["requirements"]:
        say(f"  note: {item['name']}: {item['found']}")
    if document["state"] in ("suspect", "amplifying"):
        say("what helped in the paper, for this host:")
        for rank, item in enumerate(document["mitigations"], start=1):
            _say_mitigation(say, rank, item)


def _say_mitigation(say: Any, rank: int, item: Mapping[str, Any]) -> None:
    say(f"  {rank}. {item['name']}{'' if item['applies'] else ' (not here)'}: {item['why']}")
    if item["command"]:
        say(f"     {item['command']}")


def live(document: Mapping[str, Any], clock: str) -> RenderableType:
    """What a terminal shows until the next interval; always the same rows in the same places."""
    state = document["state"]
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(min_width=18)
    table.add_column()
    for name, value in _rows(document["figures"]):
        table.add_row(name, value)
    head = Text.assemble((state, _COLOURS[state]), f"  {clock}")
    reason = Text(document["evidence"][0] if document["evidence"] else "", overflow="fold")
    unseen = Text(
        "".join(f"not seen: {text}\n" for text in document["unseen"]).rstrip(), style="dim"
    )
    return Group(head, reason, table, unseen)


def _rows(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    read, missed = figures["read_bytes_per_s"], figures["miss_bytes_per_s"]
    kswapd, limited = figures["reclaim"]["kswapd"], figures["reclaim"]["cgroup"]
    stalled = figures["stalled"]
    return [
        ("device reads", _rate(read)),
        ("computed misses", _rate(missed)),
        ("amplification", _ratio(figures["amplification"])),
        ("scan/steal kswapd", _ratio(kswapd and kswapd["ratio"])),
        ("scan/steal cgroup", _ratio(limited and limited["ratio"])),
        ("refaults", _rate(figures["refault_bytes_per_s"])),
        ("unevictable", _percent(figures["unevictable_share"])),
        ("memory stalls", f"{_percent(stalled['memory.some'])} some"),
        ("", f"{_percent(stalled['memory.full'])} full"),
        ("swap used", _size(figures["swap_used_bytes"])),
    ]


def line(document: Mapping[str, Any], clock: str) -> str:
    """One interval in a log."""
    figures = document["figures"]
    kswapd = figures["reclaim"]["kswapd"]
    return (
        f"{clock} {document['state']}: device {_rate(figures['read_bytes_per_s'])}, misses "
        f"{_rate(figures['miss_bytes_per_s'])}, amplification "
        f"{_ratio(figures['amplification'])}, kswapd scan/steal "
        f"{_ratio(kswapd and kswapd['ratio'])}, refaults "
        f"{_rate(figures['refault_bytes_per_s'])}, unevictable "
        f"{_percent(figures['unevictable_share'])}, memory stalls "
        f"{_percent(figures['stalled']['memory.some'])}"
    )


def _rate(value: float | None) -> str:
    return "n/a" if value is None else f"{format_bytes(value)}/s"


def _size(value: int | None) -> str:
    return "n/a" if value is None else format_bytes(value)


def _ratio(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{share:.1%}"
