# SPDX-License-Identifier: Apache-2.0
from pathlib import PurePath

import pytest

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.mountinfo import Mount, mount_of, parse_mountinfo

MOUNTS = r"""21 1 259:3 / / rw,relatime shared:1 master:2 - ext4 /dev/nvme0n1p3 ro,discard
22 21 0:39 /sub\134dir /mnt/a\040b rw - btrfs /dev/s\011b rw,compress=zstd:3,subvol=/x
23 21 0:40 / /mnt rw,nosuid - tmpfs none rw
24 21 0:41 / /mnt rw - nfs4 host:/export ro
"""


def test_each_field_lands_in_its_own_place() -> None:
    mounts = parse_mountinfo(MOUNTS)
    assert len(mounts) == 4
    assert mounts[0] == Mount(
        "259:3", "/", "/", "ext4", "/dev/nvme0n1p3", ("rw", "relatime"), ("ro", "discard")
    )
    assert mounts[1] == Mount(
        number="0:39",
        root="/sub\\dir",
        point="/mnt/a b",
        kind="btrfs",
        source="/dev/s\tb",
        mount_options=("rw",),
        super_options=("rw", "compress=zstd:3", "subvol=/x"),
    )


def test_nothing_mounted() -> None:
    assert parse_mountinfo("") == ()


def test_a_source_may_be_empty() -> None:
    (mount,) = parse_mountinfo("1 2 0:3 / /x rw - tmpfs  rw,size=4k\n")
    assert (mount.source, mount.super_options) == ("", ("rw", "size=4k"))


def test_blanks_that_are_not_the_kernel_s_belong_to_the_name() -> None:
    (mount,) = parse_mountinfo("1 2 0:3 / /a\u00a0b\u2028c\x0bd rw - ext4 /dev/x rw\n")
    assert mount.point == "/a\u00a0b\u2028c\x0bd"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "1 2 3",
        "1 2 0:3 / / rw ext4 /dev/x rw",
        "1 2 0:3 / / - ext4 /dev/x rw",
        "1 2 0:3 / / rw - ext4",
        "1 2 0:3 / / rw - ext4 rw",
    ],
)
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(ParseError, match=r"^/proc/self/mountinfo:5: not a mountinfo line: '"):
        parse_mountinfo(f"{MOUNTS}{line}\n")


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
    mount = mount_of(PurePath(path), parse_mountinfo(MOUNTS))
    assert mount is not None
    assert mount.kind == kind


def test_no_mount() -> None:
    assert mount_of(PurePath("/a"), ()) is None
