# SPDX-License-Identifier: Apache-2.0
"""mountinfo and cpuinfo."""

from pathlib import Path

import pytest

from pagetier.bench.kernel.cpu import Cpu, parse_cpuinfo, read_cpu
from pagetier.bench.kernel.mounts import Mount, mount_of, parse_mountinfo, read_mounts
from pagetier.cgroups.errors import ParseError

MOUNTS = r"""21 1 259:3 / / rw,relatime shared:1 master:2 - ext4 /dev/nvme0n1p3 rw,discard
22 21 0:39 / /mnt/a\040b rw - btrfs /dev/sdb rw,compress=zstd:3,subvol=/x
23 21 0:40 / /mnt rw,nosuid - tmpfs none rw
24 21 0:41 / /mnt rw - nfs4 host:/export ro
"""


def test_fields() -> None:
    mounts = parse_mountinfo(MOUNTS)
    assert mounts[0] == Mount(
        "259:3", "/", "ext4", "/dev/nvme0n1p3", ("rw", "relatime", "rw", "discard")
    )
    assert mounts[1].point == "/mnt/a b"
    assert mounts[1].options == ("rw", "rw", "compress=zstd:3", "subvol=/x")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/pool/a", "ext4"),
        ("/mnt/a b/c", "btrfs"),
        ("/mnt/a", "nfs4"),
        ("/mnt", "nfs4"),
        ("/mnt2/a", "ext4"),
    ],
)
def test_mount_of_a_path(path: str, kind: str) -> None:
    mount = mount_of(Path(path), parse_mountinfo(MOUNTS))
    assert mount is not None
    assert mount.kind == kind


def test_no_mount() -> None:
    assert mount_of(Path("/a"), ()) is None


@pytest.mark.parametrize(
    "line", ["1 2 3", "1 2 0:3 / / rw ext4 /dev/x rw", "1 2 0:3 / / rw - ext4"]
)
def test_malformed_mount(line: str) -> None:
    with pytest.raises(ParseError, match=r"mountinfo:1: .* is not a mount"):
        parse_mountinfo(line)


def test_mounts_reader(tmp_path: Path) -> None:
    assert read_mounts(tmp_path) is None
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(MOUNTS)
    assert read_mounts(tmp_path) == parse_mountinfo(MOUNTS)


X86 = """processor\t: 0
model name\t: Some CPU
flags\t\t: fpu {flag} sse

processor\t: 1
model name\t: Some other CPU
flags\t\t: fpu
"""
ARM = """processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd4f
"""


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        (X86.format(flag="hypervisor"), Cpu("Some CPU", 2, True)),
        (X86.format(flag="hypervisors"), Cpu("Some CPU", 2, False)),
        (ARM, Cpu("0x41 0xd4f", 1, None)),
        ("processor: 0\n", Cpu(None, 1, None)),
    ],
)
def test_cpu(text: str, cpu: Cpu) -> None:
    assert parse_cpuinfo(text) == cpu


def test_malformed_cpu(tmp_path: Path) -> None:
    assert read_cpu(tmp_path) is None
    (tmp_path / "cpuinfo").write_text("nothing\n")
    with pytest.raises(ParseError, match="no line `processor`"):
        read_cpu(tmp_path)
