# SPDX-License-Identifier: Apache-2.0
"""The pool and what it lies on: a device that counts, and files whose bytes are the device's."""

from pagetier.bench.device import Device
from pagetier.bench.requirements.model import (
    CHECK,
    EVERY_MECHANISM,
    Findings,
    Judgement,
    Need,
    or_unknown,
)

__all__ = ["STORAGE"]


def _device(host: Findings) -> Judgement:
    if host.device_problem is not None:
        return Judgement(False, *host.device_problem)
    if host.device is None:
        return Judgement(None, "no pool was named", "name a pool with --pool")
    return Judgement(True, _way_down(host.device), "")


def _way_down(device: Device) -> str:
    remarks = "".join(f"; {layer}" for layer in device.layers)
    if device.given:
        return f"{' + '.join(device.leaf_names)}, as named"
    if len(device.leaf_names) == 1:
        return f"{' on '.join(device.chain)}{remarks}"
    return f"{' + '.join(device.leaf_names)}, by way of {', '.join(device.chain)}{remarks}"


def _iostats(host: Findings) -> Judgement:
    device = host.device
    ok = None if device is None else device.iostats
    state = {True: "on", False: "off", None: "unknown"}[ok]
    names = ("DEVICE",) if device is None else device.leaf_names
    off = [leaf.name for leaf in device.leaves if not leaf.iostats] if device else []
    files = " ".join(f"/sys/block/{name}/queue/iostats" for name in off or names)
    return Judgement(
        ok=ok,
        found=f"iostats of {' + '.join(names)}: {state}",
        remedy=f"write 1 to {files}: without it every read counts as 0",
    )


def _residency(host: Findings) -> Judgement:
    answers = {True: "the kernel tells", False: "the kernel does not tell", None: "not asked"}
    return Judgement(
        ok=host.residency,
        found=f"{answers[host.residency]} which pages of a file are cached",
        remedy="run as the owner of the pool or as root; cachestat(2) needs Linux 6.5",
    )


def _in_sight(host: Findings) -> Judgement:
    """An overlay's files have no pages of their own: cachestat sees 0, cold or not (6.18)."""
    device = host.device
    if device is None:
        return Judgement(None, "no pool was named", "name a pool with --pool")
    if device.lower_path is None:
        return Judgement(True, "the pool is named by its own place", "")
    return Judgement(
        ok=False,
        found="named through an overlay, where no file's cached pages can be seen",
        remedy=f"name the pool by its place below, where {device.lower_path} is",
    )


def _pool(host: Findings) -> Judgement:
    pool = host.pool
    if not pool.present:
        return Judgement(None, "no pool was named", "name one with --pool")
    return Judgement(
        ok=not pool.problems,
        found="; ".join(pool.problems) or f"{pool.files} files, all allocated, on one device",
        remedy=pool.remedy,
    )


def _writers(host: Findings) -> Judgement:
    writers = host.pool.writers
    if writers is None:
        return Judgement(None, "not looked into", "run as root to see who writes to the pool")
    names = ", ".join(f"{writer.name} (pid {writer.pid})" for writer in writers)
    return Judgement(
        ok=not writers,
        found=f"open for writing by {names}" if writers else "nobody writes to it",
        remedy="wait until the pool is complete, or end what writes to it",
    )


def _own_bytes(host: Findings) -> Judgement:
    device = host.device
    if device is None:
        return Judgement(None, "no pool was named", "name a pool with --pool")
    return Judgement(
        ok="compressed" not in device.traits,
        found=", ".join(device.traits) or "stored as they are",
        remedy="store the pool uncompressed (btrfs: `chattr +m` its empty folder, or mount without "
        "compress, and make the pool again): device bytes are else not the experts'",
    )


def _over_read(host: Findings) -> Judgement:
    limit_bytes = None if host.device is None else host.device.over_read_limit_bytes
    expert_bytes, layout = host.pool.expert_bytes, host.pool.layout
    ok = None
    if layout == "files":
        ok = True
    elif layout is not None and expert_bytes is not None and limit_bytes is not None:
        ok = expert_bytes <= limit_bytes
    # The weights of a model stay as they are.
    mapped = layout == "mapped"
    parted, pieces = ("", "extents") if mapped else ("one file per expert or ", "experts")
    at_least = "" if expert_bytes is None else f" to {-(-expert_bytes // 1024)}"
    return Judgement(
        ok=ok,
        found=f"layout {or_unknown(layout)}, {pieces} of {or_unknown(expert_bytes)} bytes, reads "
        f"over {or_unknown(limit_bytes)} bytes are read ahead past their end",
        remedy=f"use {parted}`advice: random`, or raise read_ahead_kb{at_least}: a neighbour's "
        "bytes would count as device reads",
    )


def _free_space(host: Findings) -> Judgement:
    planned, free = host.pool.planned_bytes, host.free_bytes
    ok = None if planned is None or free is None else planned <= free
    return Judgement(
        ok=True if host.pool.present else ok,
        found=f"{or_unknown(free)} bytes free, "
        + ("pool is there" if host.pool.present else f"{or_unknown(planned)} needed"),
        remedy="free some space or put the pool on a larger file system",
    )


STORAGE = (
    Need("device", _device, EVERY_MECHANISM),
    Need("block accounting", _iostats, (*EVERY_MECHANISM, CHECK)),
    Need("stored bytes", _own_bytes, (*EVERY_MECHANISM, CHECK)),
    Need("page cache in sight", _in_sight, EVERY_MECHANISM),
    Need("residency", _residency, ("in-extent",)),
    Need("pool", _pool, EVERY_MECHANISM),
    Need("writers to the pool", _writers, EVERY_MECHANISM),
    Need("readahead against expert size", _over_read),
    Need("free space", _free_space, EVERY_MECHANISM),
)
