# SPDX-License-Identifier: Apache-2.0
import errno
import os
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.native import content

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15

seeds = st.integers(0, MASK)
experts = st.integers(0, 2**32 - 1)


def mix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def oracle(seed: int, expert: int, offset: int, length: int) -> bytes:
    """The definition, in plain Python: little-endian words of one splitmix64 stream."""
    start = mix(mix(seed + GAMMA & MASK) + GAMMA * (expert + 1) & MASK)
    first, last = offset // 8, (offset + length) // 8
    words = (mix(start + GAMMA * (index + 1) & MASK) for index in range(first, last + 1))
    text = b"".join(word.to_bytes(8, "little") for word in words)
    return text[offset % 8 : offset % 8 + length]


@given(seeds, experts, st.integers(0, 2**62), st.integers(0, 700), st.integers(0, 9))
def test_fill_is_the_definition(
    seed: int, expert: int, offset: int, length: int, shift: int
) -> None:
    room = bytearray(b"\xa5" * (length + shift + 8))
    content.fill(memoryview(room)[shift : shift + length], seed, expert, offset)
    assert room[shift : shift + length] == oracle(seed, expert, offset, length)
    assert room[:shift] == b"\xa5" * shift
    assert room[shift + length :] == b"\xa5" * 8


def test_pools_made_yesterday_stay_valid() -> None:
    buffer = bytearray(16)
    content.fill(buffer, 1, 2, 0)
    assert buffer.hex() == "b04b23444620123e9f4d032c059aabfe"


@given(seeds, experts, st.integers(0, 2**62), st.integers(1, 3000), st.data())
def test_mismatch_names_the_first_wrong_byte(
    seed: int, expert: int, offset: int, length: int, data: st.DataObject
) -> None:
    buffer = bytearray(length)
    content.fill(buffer, seed, expert, offset)
    assert content.mismatch(buffer, seed, expert, offset) is None
    wrong = sorted(data.draw(st.sets(st.integers(0, length - 1), min_size=1, max_size=3)))
    for index in wrong:
        buffer[index] ^= data.draw(st.integers(1, 255))
    assert content.mismatch(bytes(buffer), seed, expert, offset) == wrong[0]


def test_another_seed_or_expert_is_other_content() -> None:
    buffer = bytearray(4096)
    content.fill(buffer, 1, 2)
    assert content.mismatch(buffer, 1, 3) is not None
    assert content.mismatch(buffer, 2, 2) is not None
    assert content.mismatch(buffer, 1, 2, 8) is not None


def test_content_does_not_compress() -> None:
    buffer = bytearray(1 << 20)
    content.fill(buffer, 3, 4)
    assert len(zlib.compress(buffer)) > len(buffer)


def test_a_read_only_buffer_is_not_filled() -> None:
    with pytest.raises((TypeError, BufferError)):
        content.fill(memoryview(b"12345678"), 1, 1)


def test_what_was_written_verifies(tmp_path: Path) -> None:
    length = 600_001
    with (tmp_path / "experts").open("w+b") as file:
        fd = file.fileno()
        content.write(fd, 5, length, 7, 1)
        content.write(fd, 5 + length, length, 7, 2)
        assert file.read() == bytes(5) + oracle(7, 1, 0, length) + oracle(7, 2, 0, length)
        assert content.verify(fd, 5, length, 7, 1) is None
        assert content.verify(fd, 5 + length, length, 7, 2) is None


@pytest.mark.parametrize("at", [0, 262_143, 262_144, 600_000])
def test_verify_names_the_first_wrong_byte(tmp_path: Path, at: int) -> None:
    with (tmp_path / "experts").open("w+b") as file:
        fd = file.fileno()
        content.write(fd, 3, 600_001, 7, 1)
        os.pwrite(fd, bytes([os.pread(fd, 1, 3 + at)[0] ^ 128]), 3 + at)
        assert content.verify(fd, 3, 600_001, 7, 1) == at


def test_verify_of_a_short_file_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "experts").open("w+b") as file:
        content.write(file.fileno(), 0, 1000, 7, 1)
        with pytest.raises(OSError) as raised:
            content.verify(file.fileno(), 0, 1001, 7, 1)
    assert raised.value.errno == errno.ENODATA


def test_errors_of_the_device_are_raised() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError) as raised:
        content.write(fd, 0, 100, 1, 1)
    os.close(fd)
    assert raised.value.errno == errno.ENOSPC


def test_a_transfer_counts_over_writes_and_cancels(tmp_path: Path) -> None:
    transfer = content.Transfer()
    with (tmp_path / "experts").open("w+b") as file:
        content.write(file.fileno(), 0, 300_000, 7, 1, transfer)
        content.write(file.fileno(), 300_000, 5, 7, 2, transfer)
        assert transfer.written_bytes == 300_005
        transfer.cancel()
        with pytest.raises(OSError) as raised:
            content.write(file.fileno(), 0, 300_000, 7, 1, transfer)
    assert raised.value.errno == errno.ECANCELED
    assert transfer.written_bytes == 300_005


def test_a_write_is_cancelled_from_another_thread() -> None:
    transfer = content.Transfer()
    fd = os.open("/dev/null", os.O_WRONLY)
    timer = threading.Timer(0.05, transfer.cancel)
    timer.start()
    # 2**50 bytes take days even into /dev/null.
    with pytest.raises(OSError) as raised:
        content.write(fd, 0, 2**50, 7, 1, transfer)
    timer.join()
    os.close(fd)
    assert raised.value.errno == errno.ECANCELED
    assert transfer.written_bytes > 0
