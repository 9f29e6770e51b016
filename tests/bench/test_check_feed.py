# SPDX-License-Identifier: Apache-2.0
"""Routed experts as they come: growing files, half lines, pipes, restarts, nonsense."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.bench.check import feed as check_feed
from pagetier.bench.check.feed import Feed

SHAPE = (2, 4)
SIZES = [10] * 8


def header(layers: int = 2, experts: int = 4) -> str:
    shape = {"num_layers": layers, "num_experts": experts, "top_k": 1}
    return json.dumps({"format": "moe-route-trace", "version": 1, "model": "m", **shape}) + "\n"


def record(layer: int, *experts: int) -> str:
    return json.dumps({"req": 1, "step": 0, "layer": layer, "experts": experts}) + "\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "feed"


@pytest.fixture
def feed(path: Path) -> Iterator[Feed]:
    path.touch()
    with Feed(str(path), SHAPE, SIZES) as feed:
        feed.lru.resize(1000)
        yield feed


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_file_that_grows_line_by_line(feed: Feed, path: Path) -> None:
    feed.poll()
    append(path, header() + record(0, 1, 2))
    feed.poll()
    assert feed.lru.computed().reads == 2
    whole = record(1, 1)
    append(path, whole[:9])
    feed.poll()
    assert feed.lru.computed().reads == 2
    append(path, whole[9:] + record(0, 1))
    feed.poll()
    found = feed.lru.computed()
    # Expert 1 of layer 1 is another one than expert 1 of layer 0.
    assert (found.reads, found.miss_bytes) == (4, 30)
    assert not feed.ended


def test_a_header_that_comes_in_pieces(feed: Feed, path: Path) -> None:
    append(path, header()[:20])
    feed.poll()
    append(path, header()[20:])
    feed.poll()
    append(path, record(0, 3))
    feed.poll()
    assert feed.lru.computed().reads == 1


def test_a_file_that_was_started_anew(feed: Feed, path: Path) -> None:
    append(path, header() + record(0, 1, 2, 3) + record(1, 0)[:9])
    feed.poll()
    path.write_text(header() + record(0, 1))
    feed.poll()
    found = feed.lru.computed()
    assert (found.reads, found.miss_bytes) == (4, 30)


def test_of_a_long_file_only_the_end_is_replayed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_feed, "_MOST_PER_POLL_BYTES", 400)
    lines = [record(0, number % 4) for number in range(1000)]
    path.write_text(header() + "".join(lines))
    with Feed(str(path), SHAPE, SIZES) as feed:
        for _ in range(3):
            feed.poll()
        reads = feed.lru.computed().reads
        # The last 400 bytes begin with a line whose beginning cannot be known.
        assert reads == 400 // len(lines[0]) - 1
        append(path, record(1, 0))
        feed.poll()
        assert feed.lru.computed().reads == reads + 1


def test_a_pipe_never_blocks_and_its_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with Feed("-", SHAPE, SIZES) as feed:
            feed.poll()
            os.write(writing, (header() + record(0, 1)).encode())
            feed.poll()
            assert feed.lru.computed().reads == 1
            assert not feed.ended
            os.close(writing)
            feed.poll()
            assert feed.ended


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (record(0, 1), ":1: no header"),
        (header(3), ":1: 3 layers of 4 experts, but the pool has 2 of 4"),
        (header() + "nonsense\n", ":2: not JSON"),
        (header() + "[]\n", ":2: expected a JSON object"),
        (header() + record(2, 0), r":2: layer is 2: expected one of 0\.\.1"),
        (header() + record(0, 1) + record(0, 4), r":3: experts are \[4\]: expected"),
        (header() + record(0, -1), r":2: experts are \[-1\]"),
        (header() + '{"layer": 0, "experts": 3}\n', ":2: experts are 3"),
        (header() + '{"layer": true, "experts": [1]}\n', ":2: layer is True"),
    ],
)
def test_nonsense_is_named_by_its_line(feed: Feed, path: Path, text: str, message: str) -> None:
    append(path, text)
    with pytest.raises(InputError, match=message):
        feed.poll()


def test_a_line_without_end_is_refused(
    feed: Feed, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_feed, "_MAX_LINE_BYTES", 100)
    append(path, header() + "x" * 101)
    with pytest.raises(InputError, match=":2: the line is longer than 100 B"):
        feed.poll()


def test_a_feed_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory: name a trace file"):
        Feed(str(tmp_path / "none"), SHAPE, SIZES)
