# SPDX-License-Identifier: Apache-2.0
"""A mapped pool in use: opened, known again, evicted, verified and replayed."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import build_plan
from pagetier.native import content
from pagetier.native.arena import Arena
from pagetier.native.digest import digest
from pagetier.native.errors import ReplayError
from pagetier.native.extents import ExtentTable
from pagetier.native.reader import Mode, Reader
from pagetier.native.residency import page_bytes
from pagetier.tiers.check import check_pool
from pagetier.tiers.evict import evict_pool, require_unmapped, resident_bytes
from pagetier.tiers.info import pool_info
from pagetier.tiers.models import digests
from pagetier.tiers.models.errors import ChangedFile, MissingShard
from pagetier.tiers.models.map import map_model
from pagetier.tiers.models.pool import MappedPool
from pagetier.tiers.models.verify import digest_experts
from pagetier.tiers.pages import extent_pages
from pagetier.tiers.pool import open_pool, storage_problems

Q = gguf.GGMLQuantizationType
MakeGguf = Callable[..., Any]
ReadExtents = Callable[[ExtentTable], Iterator[bytes]]
MapSmall = Callable[..., MappedPool]


@pytest.fixture
def map_small(make_gguf: MakeGguf, disk: Path) -> MapSmall:
    """Maps a model of 2 layers x 3 experts in 4 shards; the experts of its layers differ in size
    unless told otherwise."""

    def make(uniform: bool = False, name: str = "m") -> MappedPool:
        model = make_gguf()
        if not uniform:
            model.add("blk.1.ffn_down_exps.weight", (3, 256, 512), Q.Q8_0)
        (disk / name).mkdir()
        files = model.write(disk / name / "w.gguf", 4)
        for file in files:
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        return map_model(files[0], disk / f"{name}-pool")

    return make


def test_opens_as_it_was_mapped(map_small: MapSmall) -> None:
    made = map_small()
    pool = open_pool(made.root)
    assert isinstance(pool, MappedPool)
    assert pool.manifest == made.manifest
    assert pool.digest == made.digest
    assert (pool.table.extents == made.table.extents).all()
    assert storage_problems(pool) == []


def test_sizes_differ_between_layers(map_small: MapSmall) -> None:
    pool = map_small()
    small, large = 512 * (144 * 2 + 210), 512 * (144 * 2 + 272)
    assert pool.expert_sizes.tolist() == [small] * 3 + [large] * 3
    assert pool.total_bytes == 3 * (small + large)
    assert (pool.largest_expert_bytes, pool.largest_extent_bytes) == (large, 512 * 272)
    with pytest.raises(InputError, match=f"have {small} to {large} bytes, and this needs"):
        _ = pool.expert_bytes
    with pytest.raises(InputError, match="comes from no seed"):
        _ = pool.seed


def test_one_size_is_the_size_of_every_expert(map_small: MapSmall) -> None:
    assert map_small(uniform=True).expert_bytes == 512 * (144 * 2 + 210)


def test_info_shows_what_is_not_an_expert_and_what_experts_share(map_small: MapSmall) -> None:
    pool = map_small()
    info = pool_info(pool)
    assert json.loads(json.dumps(info)) == info
    assert info["expert_bytes"] == {
        "min": int(pool.expert_sizes.min()),
        "max": int(pool.expert_sizes.max()),
        "mean": float(pool.expert_sizes.mean()),
    }
    assert info["spine_bytes"] == pool.manifest.spine_bytes > 0
    assert (info["extents"], info["extents_per_expert"]) == (18, {"min": 3, "max": 3})
    assert (info["files"], info["layout"], info["format"]) == (4, "mapped", "gguf")
    assert info["alignment"] == 32
    assert info["model_layers"] == "0-1"
    page = page_bytes()
    touched: dict[tuple[int, int], set[int]] = {}
    for number, extent in enumerate(pool.table.extents):
        first = int(extent["offset"]) // page
        last = (int(extent["offset"]) + int(extent["length"]) - 1) // page
        for at in range(first, last + 1):
            touched.setdefault((int(extent["file"]), at), set()).add(number // 3)
    assert info["pages"] == len(touched)
    assert info["shared_pages"] == sum(len(experts) > 1 for experts in touched.values()) > 0
    assert info["page_rounded_bytes"] == page * sum(map(len, touched.values()))
    written = [
        layer.page_rounded_bytes if isinstance(layer.page_rounded_bytes, list) else None
        for layer in pool.manifest.layers
    ]
    rounded = (extent_pages(pool.table, page) * page).reshape(2, 3).tolist()
    assert [one or two for one, two in zip(written, rounded, strict=True)] == rounded


def test_a_file_that_changes_is_another_file(map_small: MapSmall) -> None:
    pool = map_small()
    path = Path(pool.files()[2])
    kept = path.with_suffix(".kept")
    shutil.copy2(path, kept)

    def refused(message: str) -> None:
        with pytest.raises(ChangedFile, match=message):
            open_pool(pool.root)
        with (
            pytest.raises(ChangedFile, match=message),
            pool.opened() as root_fd,
            pool.opened_file(root_fd, str(path)),
        ):
            pass

    os.replace(kept, path)
    refused("is another file than the one that was mapped")
    replaced, pool = pool, map_model(Path(pool.manifest.model.source), pool.root)
    assert pool.manifest != replaced.manifest
    times = path.stat().st_mtime_ns
    os.utime(path, ns=(times, times + 1))
    refused("was written to after it was mapped")
    os.utime(path, ns=(times, times))
    open_pool(pool.root)
    size = path.stat().st_size
    for other in (size + 1, size - 1):
        os.truncate(path, other)
        os.utime(path, ns=(times, times))
        refused(f"has {other} bytes, {size} when it was mapped")


def test_a_file_that_becomes_a_link_or_goes(map_small: MapSmall, disk: Path) -> None:
    pool = map_small()
    path = Path(pool.files()[1])
    path.rename(disk / "moved")
    with pytest.raises(MissingShard, match="is missing; bring it back"):
        open_pool(pool.root)
    path.symlink_to(disk / "moved")
    with pytest.raises(ChangedFile, match="has become a symbolic link"):
        open_pool(pool.root)


def test_the_weights_are_never_written(map_small: MapSmall, empty_proc: Path) -> None:
    pool = map_small()
    before = [(Path(path).read_bytes(), os.stat(path).st_mtime_ns) for path in pool.files()]
    for path in pool.files():
        os.chmod(path, 0o444)
    assert check_pool(pool) is None
    evict_pool(pool, empty_proc)
    assert before == [(Path(path).read_bytes(), os.stat(path).st_mtime_ns) for path in pool.files()]
    assert sorted(os.listdir(pool.root)) == ["digests.npz", "pool.json"]


def test_holes_are_a_problem_and_so_is_room_that_is_only_reserved(
    map_small: MapSmall, disk: Path
) -> None:
    pool = map_small()
    source = Path(pool.manifest.model.source)
    last = Path(pool.files()[-1])
    whole = last.read_bytes()
    size, tail = len(whole), 65536
    for reserve in (False, True):
        last.write_bytes(whole[: size - tail])
        if reserve:
            with last.open("r+b") as file:
                os.posix_fallocate(file.fileno(), size - tail, tail)
        os.truncate(last, size)
        with last.open("rb") as file:
            os.fsync(file.fileno())
        (problem,) = storage_problems(map_model(source, pool.root))
        assert problem.startswith(f"{last}: is not fully allocated")
        assert "download or copy it again" in problem


def test_files_on_several_devices_are_a_problem(map_small: MapSmall, disk: Path) -> None:
    pool = map_small()
    last = Path(pool.files()[-1])
    elsewhere = Path("/dev/shm") / f"pagetier-test-{os.getpid()}.gguf"
    assert os.stat("/dev/shm").st_dev != os.stat(disk).st_dev
    shutil.copyfile(last, elsewhere)
    try:
        last.unlink()
        last.symlink_to(elsewhere)
        mapped = map_model(Path(pool.manifest.model.source), pool.root)
        assert any("several devices" in problem for problem in storage_problems(mapped))
        with pytest.raises(InputError, match="is on tmpfs, which lives in memory"):
            evict_pool(mapped, Path("/proc"))
    finally:
        elsewhere.unlink()


def test_eviction_is_proven_file_by_file(map_small: MapSmall, empty_proc: Path) -> None:
    pool = map_small()
    for path in pool.files():
        Path(path).read_bytes()
    assert (resident_bytes(pool) or 0) >= pool.total_bytes
    eviction = evict_pool(pool, empty_proc)
    assert eviction.proven, eviction.reason
    assert resident_bytes(pool) == 0
    require_unmapped(pool, Path("/proc"))


def test_the_map_may_lie_in_memory(make_gguf: MakeGguf, disk: Path, empty_proc: Path) -> None:
    (file,) = make_gguf().write(disk / "m.gguf")
    folder = Path("/dev/shm") / f"pagetier-test-{os.getpid()}"
    try:
        assert evict_pool(map_model(file, folder), empty_proc).proven
    finally:
        shutil.rmtree(folder)


def test_the_first_check_records_and_the_next_compares(map_small: MapSmall, disk: Path) -> None:
    pool = map_small()
    assert not digests.load_digests(pool).known.any()
    assert check_pool(pool) is None
    assert digests.load_digests(pool).known.all()
    assert check_pool(pool) is None
    path, time = Path(pool.files()[2]), os.stat(pool.files()[2]).st_mtime_ns
    extent = next(e for e in pool.table.extents[12:15] if pool.files()[e["file"]] == str(path))
    with path.open("r+b") as file:
        file.seek(int(extent["offset"]) + 77)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(time, time))
    bad = check_pool(pool)
    assert bad is not None
    assert (bad.layer, bad.expert) == (1, 1)
    assert "its bytes hash to" in bad.what


def test_a_changed_file_forgets_its_digests(map_small: MapSmall) -> None:
    pool = map_small()
    check_pool(pool)
    path = Path(pool.files()[0])
    os.utime(path)
    with pytest.raises(ChangedFile, match="was written to"):
        check_pool(pool)
    again = map_model(Path(pool.manifest.model.source), pool.root)
    assert not digests.load_digests(again).known.any()


def test_the_digests_survive_a_new_map_of_the_same_files(map_small: MapSmall) -> None:
    pool = map_small()
    check_pool(pool)
    again = map_model(Path(pool.manifest.model.source), pool.root)
    assert digests.load_digests(again).known.all()
    # After a reboot the device may have another number.
    moved = pool.manifest.model_copy(
        update={"files": [f.model_copy(update={"device": 99}) for f in pool.manifest.files]}
    )
    assert MappedPool.of(pool.root, moved).digest == pool.digest


def test_only_the_experts_asked_for_are_read(
    map_small: MapSmall, extents_of: ReadExtents, empty_proc: Path
) -> None:
    pool = map_small()
    evict_pool(pool, empty_proc)
    found = digest_experts(pool, np.array([4, 1, 4]))
    read = list(extents_of(pool.table))
    assert found.tolist() == [0, digest(read[1]), 0, 0, digest(read[4]), 0]
    assert digests.load_digests(pool).known.tolist() == [False, True, False, False, True, False]
    assert digest_experts(pool, np.array([], dtype=np.int64)).tolist() == found.tolist()


def test_reading_leaves_the_cache_as_it_was(map_small: MapSmall, empty_proc: Path) -> None:
    pool = map_small()
    evict_pool(pool, empty_proc)
    before = len(os.listdir("/proc/self/fd"))
    check_pool(pool)
    assert len(os.listdir("/proc/self/fd")) == before
    assert resident_bytes(pool) == 0
    for path in pool.files():
        Path(path).read_bytes()
    warm = resident_bytes(pool)
    check_pool(pool)
    assert resident_bytes(pool) == warm, "pages that were there belong to somebody"


@pytest.mark.parametrize("raw", [b"", b"PK", b"x" * 100, b"y" * 100_000])
def test_a_cache_that_is_none(map_small: MapSmall, raw: bytes) -> None:
    pool = map_small()
    (pool.root / "digests.npz").write_bytes(raw)
    with pytest.raises(InputError, match=r"digests\.npz: holds no digests of this pool; remove it"):
        check_pool(pool)


def test_a_cache_is_never_unpickled_nor_followed(map_small: MapSmall, disk: Path) -> None:
    pool = map_small()
    value = np.zeros(6, dtype=np.uint64)
    evil = np.array([object()], dtype=object)
    np.savez(pool.root / "digests.npz", pool=evil, value=value, known=value > 0)
    with pytest.raises(InputError, match="holds no digests"):
        check_pool(pool)
    (pool.root / "digests.npz").rename(disk / "elsewhere")
    (pool.root / "digests.npz").symlink_to(disk / "elsewhere")
    with pytest.raises(InputError, match="symbolic link"):
        check_pool(pool)


def test_a_read_error_is_the_expert_s(map_small: MapSmall, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = map_small()
    real = os.preadv

    def failing(fd: int, buffers: Any, offset: int) -> int:
        if offset == int(pool.table.extents["offset"][9]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    bad = check_pool(pool)
    assert bad is not None
    assert "Input/output error" in str(bad)


def test_files_that_change_while_they_are_read(
    map_small: MapSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = map_small()
    real = os.preadv

    def reading(fd: int, buffers: Any, offset: int) -> int:
        os.utime(fd)
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", reading)
    with pytest.raises(ChangedFile, match="was written to"):
        check_pool(pool)
    assert os.listdir(pool.root) == ["pool.json"], "digests of no one state were kept"


def test_progress_goes_up_to_the_whole(map_small: MapSmall) -> None:
    pool = map_small()
    reports: list[tuple[int, int]] = []
    check_pool(pool, lambda *both: reports.append(both))
    assert reports[-1] == (pool.total_bytes, pool.total_bytes)


MODES: tuple[Mode, ...] = ("pread", "mmap", "populate", "direct", "dontcache", "drop-behind")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("uniform", [True, False])
def test_a_replay_reads_the_bytes_of_the_experts(
    map_small: MapSmall, extents_of: ReadExtents, mode: Mode, uniform: bool
) -> None:
    pool = map_small(uniform)
    plan = build_plan(default_trace(2, 3, 2, iterations=9, seed=4, zipf=1.0, reuse=0.3))
    experts = list(extents_of(pool.table))
    with Reader(pool.extent_table(), threads=3, mode=mode) as reader:
        try:
            result = reader.replay(plan, hash_content=True)
        except ReplayError as error:
            assert mode == "dontcache" and error.errno == errno.EOPNOTSUPP
            return
    expected = sum(digest(experts[e], number) for number, e in enumerate(plan.experts.tolist()))
    assert result.content_hash == expected % (1 << 64)
    assert result.iteration_bytes.tolist() == plan.demand_bytes(pool.expert_sizes).tolist()


def locked_bytes() -> int:
    """VmLck of this process."""
    (line,) = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmLck:")
    ]
    return int(line.split()[1]) * 1024


def test_an_arena_holds_experts_of_several_sizes(
    map_small: MapSmall, extents_of: ReadExtents
) -> None:
    pool = map_small()
    plan = build_plan(default_trace(2, 3, 2, iterations=9, seed=4, zipf=1.0, reuse=0.3))
    experts = list(extents_of(pool.table))
    held = np.array([1, 4, 5], dtype=np.uint32)
    with Arena(pool.extent_table(), held, vm_lck_bytes=locked_bytes) as arena:
        loaded = arena.preload()
        assert loaded.bytes == pool.expert_sizes[held].sum()
        with Reader(pool.extent_table(), threads=2, arena=arena) as reader:
            result = reader.replay(plan, hash_content=True)
    expected = sum(digest(experts[e], number) for number, e in enumerate(plan.experts.tolist()))
    assert result.content_hash == expected % (1 << 64)


@pytest.mark.parametrize("mode", ["pread", "mmap"])
def test_a_replay_verifies_generated_weights(make_gguf: MakeGguf, disk: Path, mode: Mode) -> None:
    """Weights that are the content of made pools: C compares every byte read through extents."""
    model = make_gguf(gate=Q.Q4_0, down=Q.Q8_0)
    roles = ("down", "gate", "up")  # the order on file
    for layer in range(2):
        start = 0
        for role in roles:
            data = model.tensors[f"blk.{layer}.ffn_{role}_exps.weight"][0]
            length = data[0].nbytes
            for expert in range(3):
                piece = bytearray(length)
                content.fill(piece, 11, layer * 3 + expert, start)
                data[expert] = np.frombuffer(piece, dtype=np.uint8).reshape(data[expert].shape)
            start += length
    files = model.write(disk / "m.gguf", 4)
    pool = map_model(files[0], disk / "pool")
    plan = build_plan(default_trace(2, 3, 2, iterations=5, seed=4, zipf=1.0, reuse=0.3))
    with Reader(pool.extent_table(), threads=2, mode=mode) as reader:
        result = reader.replay(plan, verify_every=1, content_seed=11)
        assert result.verified_reads == plan.num_reads
        with pytest.raises(ReplayError, match="content"):
            reader.replay(plan, verify_every=1, content_seed=12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(num_layers=3), "num_layers is 3 and layers has 2"),
        (lambda m: m["layers"][0].update(expert_bytes=5), "sizes of layer 0"),
        (lambda m: m["layers"][0]["parts"][0].update(offset=1 << 40), "behind the end"),
        (lambda m: m["layers"][0]["parts"][0].update(file=7), "lies in file 7 of 4"),
        (lambda m: m["layers"][0]["parts"][0].update(file=[0, 1]), "several files or sizes"),
        (lambda m: m["layers"][0]["parts"][0].update(offset=[1]), "not one entry for each of 3"),
        (lambda m: m["files"][0].update(path="w.gguf"), "field files.0.path"),
        (lambda m: m.update(num_experts=1 << 16), "sizes of layer 0|behind the end"),
        (lambda m: m.update(num_experts=1 << 17), "field num_experts"),
        (lambda m: m.update(seed=1), "field seed: Extra inputs"),
        (lambda m: m.update(version=2.0), "field version is 2.0"),
    ],
)
def test_a_manifest_that_contradicts_itself(
    map_small: MapSmall, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    pool = map_small()
    path = pool.root / "pool.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))
    with pytest.raises(InputError, match=message) as caught:
        open_pool(pool.root)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value)) < 500


def test_another_thing_in_place_of_the_map_stays(map_small: MapSmall, disk: Path) -> None:
    pool, other = map_small(), map_small(name="other")
    (disk / "empty").mkdir()
    (disk / "file").write_text("")
    source = Path(pool.manifest.model.source)
    for target in (disk / "empty", disk / "file", other.root):
        with pytest.raises(InputError, match=r"is no pool|of something else"):
            map_model(source, target)
    with pytest.raises(InputError, match="make the folder that is to hold it first"):
        map_model(source, disk / "absent" / "pool")
    assert os.listdir(disk / "empty") == []
    assert open_pool(other.root).digest == other.digest


@pytest.mark.parametrize("mode", ["pread", "mmap", "direct"])
def test_a_reader_reads_no_other_file_in_the_place_of_a_mapped_one(
    map_small: MapSmall, mode: Mode
) -> None:
    """Swapped after the last look at the files: the same size and bytes are not the same file."""
    pool = map_small()
    table, path = pool.extent_table(), Path(pool.files()[1])
    with Reader(table, threads=2, mode=mode):
        pass
    other = path.with_suffix(".copy")
    shutil.copyfile(path, other)
    os.replace(other, path)
    with pytest.raises(ReplayError, match="another file than the one that was mapped") as raised:
        Reader(table, threads=2, mode=mode)
    assert (raised.value.errno, raised.value.filename) == (errno.ESTALE, str(path))
    held = np.arange(6, dtype=np.uint32)
    with (
        Arena(table, held, vm_lck_bytes=locked_bytes) as arena,
        pytest.raises(ReplayError, match="another file than the one that was mapped"),
    ):
        arena.preload()
