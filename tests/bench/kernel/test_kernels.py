# SPDX-License-Identifier: Apache-2.0
"""vmstat, meminfo, diskstats and pressure as five kernels write them, cut short and damaged.

The names in the fixtures are the kernels', the numbers are made up: each is unique in its file, so
that a swapped field cannot pass.
"""

from pathlib import Path

import pytest

from pagetier.analysis.reclaim import SOURCES, reclaim_between
from pagetier.bench.kernel.diskstats import parse_diskstats, read_diskstats
from pagetier.bench.kernel.vmstat import parse_vmstat, read_vmstat
from pagetier.capacity.meminfo import parse_meminfo
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.psi import parse_pressure, read_pressure

KERNELS = Path(__file__).parents[1] / "fixtures/kernels"
VERSIONS = ("5.15", "6.1", "6.8", "6.12", "6.18")
SINCE = {"khugepaged": ("6.8", "6.12", "6.18"), "proactive": ("6.18",)}


def text(version: str, name: str) -> str:
    return (KERNELS / version / name).read_text()


def line_of(version: str, name: str, start: str) -> int:
    """The number on the line that starts so."""
    (line,) = [
        line for line in text(version, name).splitlines() if line.split()[0] in (start, f"{start}:")
    ]
    return int(line.split()[1])


@pytest.mark.parametrize("version", VERSIONS)
def test_vmstat(version: str) -> None:
    values = parse_vmstat(text(version, "vmstat"))
    for name in ("pgpgin", "pgscan_kswapd", "pgsteal_file", "workingset_refault_file", "nr_mlock"):
        assert values[name] == line_of(version, "vmstat", name)
    for source in SOURCES:
        there = version in SINCE.get(source, VERSIONS)
        assert (f"pgscan_{source}" in values) is there
        assert (f"pgsteal_{source}" in values) is there


@pytest.mark.parametrize("version", VERSIONS)
def test_reclaim_names_the_sources_that_a_kernel_has(version: str) -> None:
    values = parse_vmstat(text(version, "vmstat"))
    found = reclaim_between(
        values, values, where="host", mglru_enabled=False, includes_limits=None, sources=SOURCES
    )
    assert found is not None
    assert found.sources == tuple(s for s in SOURCES if version in SINCE.get(s, VERSIONS))


@pytest.mark.parametrize("version", VERSIONS)
def test_meminfo(version: str) -> None:
    found = parse_meminfo(text(version, "meminfo"))
    for name in ("MemTotal", "MemAvailable", "Unevictable", "Mlocked", "Inactive(file)"):
        assert found.bytes_by_name[name] == line_of(version, "meminfo", name) * 1024
    assert found.counts_by_name["HugePages_Total"] == line_of(version, "meminfo", "HugePages_Total")
    assert ("Zswap" in found.bytes_by_name) is (version != "5.15")


@pytest.mark.parametrize("version", VERSIONS)
def test_diskstats(version: str) -> None:
    disks = parse_diskstats(text(version, "diskstats"))
    assert [disk.name for disk in disks.values()] == [
        "loop0",
        "nvme0n1",
        "nvme0n1p1",
        "dm-0",
        "sr0",
    ]
    base = 100_000 * (5 - VERSIONS.index(version))
    assert disks[259, 0].reads == base + 101
    assert disks[259, 0].sectors_read == base + 103
    assert disks[259, 1].sectors_written == base + 207


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["memory", "io", "cpu"])
def test_pressure(version: str, kind: str) -> None:
    found = parse_pressure(text(version, f"pressure-{kind}"))
    assert found.some is not None and found.full is not None
    assert found.full.total_us == found.some.total_us + 1


def test_missing_files_are_none(tmp_path: Path) -> None:
    assert read_vmstat(tmp_path) is None
    assert read_diskstats(tmp_path) is None
    assert read_pressure(tmp_path / "memory") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_damaged_line_is_named(version: str) -> None:
    """A number that was cut, a line without one: never a value, and never a silent skip."""
    vmstat = text(version, "vmstat").replace("\npgscan_direct ", "\npgscan_direct x", 1)
    number = vmstat.splitlines().index(
        next(line for line in vmstat.splitlines() if line.startswith("pgscan_direct x"))
    )
    with pytest.raises(ParseError, match=rf"vmstat:{number + 1}.*pgscan_direct"):
        parse_vmstat(vmstat, where="vmstat")
    with pytest.raises(ParseError, match="diskstats:2"):
        disks = text(version, "diskstats").splitlines()
        parse_diskstats("\n".join([disks[0], disks[1][:40]]), where="diskstats")
    with pytest.raises(ParseError, match="meminfo:1"):
        parse_meminfo(text(version, "meminfo").replace(" kB", " pages", 1), "meminfo")
    with pytest.raises(ParseError, match="total is missing"):
        parse_pressure(text(version, "pressure-memory").replace("total=", "sum=", 1))
