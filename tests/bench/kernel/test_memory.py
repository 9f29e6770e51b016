# SPDX-License-Identifier: Apache-2.0
"""Files about reclaim: DAMON, NUMA nodes, swap."""

from pathlib import Path

import pytest

from pagetier.bench.kernel.damon import Kdamond, read_proactive_reclaim
from pagetier.bench.kernel.numa import Node, parse_node_meminfo, read_nodes
from pagetier.bench.kernel.swaps import Swap, parse_swaps, read_swaps
from pagetier.cgroups.errors import ParseError


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def kdamond(base: Path, index: int, state: str, *actions: str) -> None:
    folder = base / "kernel/mm/damon/admin/kdamonds" / str(index)
    write(folder / "state", f"{state}\n")
    write(folder / "contexts/nr_contexts", "1\n")
    write(folder / "contexts/0/schemes/nr_schemes", f"{len(actions)}\n")
    for number, action in enumerate(actions):
        write(folder / f"contexts/0/schemes/{number}/action", f"{action}\n")


def test_damon_pageout_is_proactive_reclaim(tmp_path: Path) -> None:
    kdamond(tmp_path, 0, "on", "stat", "pageout")
    kdamond(tmp_path, 1, "off", "pageout")
    kdamond(tmp_path, 10, "on", "lru_prio")
    found = read_proactive_reclaim(tmp_path)
    assert found.kdamonds == (
        Kdamond(0, "on", ("stat", "pageout")),
        Kdamond(1, "off", ("pageout",)),
        Kdamond(10, "on", ("lru_prio",)),
    )
    assert found.damon_reclaim is None
    assert found.running == ("DAMON kdamond 0 with scheme action pageout",)


@pytest.mark.parametrize(("switch", "running"), [("Y\n", ("damon_reclaim",)), ("N\n", ())])
def test_damon_reclaim_module(tmp_path: Path, switch: str, running: tuple[str, ...]) -> None:
    write(tmp_path / "module/damon_reclaim/parameters/enabled", switch)
    assert read_proactive_reclaim(tmp_path).running == running


def test_no_damon(tmp_path: Path) -> None:
    found = read_proactive_reclaim(tmp_path)
    assert (found.kdamonds, found.damon_reclaim, found.running) == ((), None, ())


def test_malformed_damon_reclaim(tmp_path: Path) -> None:
    write(tmp_path / "module/damon_reclaim/parameters/enabled", "maybe\n")
    with pytest.raises(ParseError, match=r"parameters/enabled:1: switch is 'maybe'"):
        read_proactive_reclaim(tmp_path)


NODE = """Node {0} MemTotal:        1{0} kB
Node {0} MemFree:         2{0} kB
Node {0} Active(file):    3{0} kB
Node {0} FilePages:       4{0} kB
Node {0} HugePages_Total:     5{0}
"""


def test_nodes_with_and_without_cpus(tmp_path: Path) -> None:
    base = tmp_path / "devices/system/node"
    for index, cpus in {0: "0-71\n", 10: "\n", 2: "\n"}.items():
        write(base / f"node{index}/meminfo", NODE.format(index))
        write(base / f"node{index}/cpulist", cpus)
    write(base / "online", "0,2,10\n")
    nodes = read_nodes(tmp_path)
    assert nodes == (
        Node(0, "0-71", 10 * 1024, 20 * 1024, 40 * 1024),
        Node(2, "", 12 * 1024, 22 * 1024, 42 * 1024),
        Node(10, "", 110 * 1024, 210 * 1024, 410 * 1024),
    )
    assert [node.has_cpus for node in nodes] == [True, False, False]


def test_no_nodes(tmp_path: Path) -> None:
    assert read_nodes(tmp_path) == ()


def test_huge_page_counts_of_a_node_are_no_bytes() -> None:
    assert parse_node_meminfo(NODE.format(0))["HugePages_Total"] == 50


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MemTotal: 1 kB\n", r"node0/meminfo:1: 'MemTotal: 1 kB' is not"),
        ("Node 0 MemTotal: x kB\n", r"node0/meminfo:1: MemTotal is 'x'"),
        ("Node 0 MemTotal: 1 kB\n", r"node0/meminfo: no line 'MemFree'"),
    ],
)
def test_malformed_node(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "devices/system/node/node0/meminfo", text)
    with pytest.raises(ParseError, match=message):
        read_nodes(tmp_path)


HEADING = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


def test_swaps() -> None:
    text = (
        f"{HEADING}/dev/zram0                              partition\t4\t3\t100\n"
        "/swap\\040file                            file\t\t20\t10\t-2\n"
    )
    swaps = parse_swaps(text)
    assert swaps == (
        Swap("/dev/zram0", "partition", 4096, 3072),
        Swap("/swap\\040file", "file", 20480, 10240),
    )
    assert [swap.in_memory for swap in swaps] == [True, False]


def test_swap_off_is_empty_and_no_swap_file_is_none(tmp_path: Path) -> None:
    assert read_swaps(tmp_path) is None
    write(tmp_path / "swaps", HEADING)
    assert read_swaps(tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"swaps:1: the heading"),
        (f"{HEADING}/dev/sda2 partition 1 2\n", r"swaps:2: 4 columns"),
        (f"{HEADING}/dev/sda2 partition x 2 -2\n", r"swaps:2: Size is 'x'"),
    ],
)
def test_malformed_swaps(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_swaps(text)
