# SPDX-License-Identifier: Apache-2.0
"""The archive against a reader written from the format's description."""

import stat
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from pagetier.capacity.lab.initramfs import Entry, archive, directory, executable, file, link, node


def read(data: bytes) -> Iterator[tuple[str, int, bytes, tuple[int, int]]]:
    at = 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, size, major, minor, name_size = (fields[n] for n in (1, 6, 9, 10, 11))
        name = data[at + 110 : at + 110 + name_size]
        assert name.endswith(b"\0")
        start = -(-(at + 110 + name_size) // 4) * 4
        content = data[start : start + size]
        assert len(content) == size
        if name == b"TRAILER!!!\0":
            assert -(-start // 4) * 4 == len(data)
            return
        yield name[:-1].decode(), mode, content, (major, minor)
        at = -(-(start + size) // 4) * 4


def test_members_come_back_with_their_kind() -> None:
    entries = [
        directory("proc"),
        executable("bin/busybox", b"program"),
        link("bin/sh", "busybox"),
        node("dev/console", 5, 1),
        file("job/deep/file", b"x" * 5),
    ]
    found = {name: (mode, content, dev) for name, mode, content, dev in read(archive(entries))}
    assert list(found) == [
        *("proc", "bin", "bin/busybox", "bin/sh", "dev", "dev/console"),
        *("job", "job/deep", "job/deep/file"),
    ]
    assert found["bin/busybox"] == (stat.S_IFREG | 0o755, b"program", (0, 0))
    assert found["bin/sh"] == (stat.S_IFLNK | 0o777, b"busybox", (0, 0))
    assert found["dev/console"] == (stat.S_IFCHR | 0o600, b"", (5, 1))
    assert found["job/deep/file"][1] == b"xxxxx"
    assert stat.S_ISDIR(found["job/deep"][0])


NAMES = st.text("abcdef-._", min_size=1, max_size=9).filter(lambda name: name.strip("."))


@given(st.dictionaries(NAMES, st.binary(max_size=9)))
def test_every_content_comes_back(contents: dict[str, bytes]) -> None:
    entries: list[Entry] = [file(name, content) for name, content in contents.items()]
    assert {name: content for name, _, content, _ in read(archive(entries))} == contents
