# SPDX-License-Identifier: Apache-2.0
import pytest

from pagetier.native.digest import digest


@pytest.mark.parametrize(
    ("content", "seed", "expected"),
    [
        # Vectors of the reference implementation and of its bindings.
        (b"", 0, 0xEF46DB3751D8E999),
        (b"", 1, 0xD5AFBA1336A3BE4B),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_xxh64_of_known_texts(content: bytes, seed: int, expected: int) -> None:
    assert digest(content, seed) == expected
    assert digest(memoryview(bytearray(content)), seed) == expected
