# SPDX-License-Identifier: Apache-2.0
"""What else takes pages away or moves them: pressure, MGLRU, killers, proactive reclaim, nodes."""

from pagetier.analysis.units import format_bytes
from pagetier.bench.kernel.numa import Node
from pagetier.bench.requirements.model import PRESSURE, Findings, Judgement, Need

__all__ = ["RECLAIM"]


def _psi(host: Findings) -> Judgement:
    remedies = {
        "available": "",
        "disabled": "boot with psi=1",
        "absent": "use a kernel with CONFIG_PSI=y (4.20 or later)",
    }
    return Judgement(
        ok=host.psi == "available",
        found=f"pressure of the host: {host.psi}",
        remedy=remedies[host.psi],
    )


def _scope_psi(host: Findings) -> Judgement:
    ok = host.psi == "available" and host.memory_cgroup == "v2"
    found = "available" if ok else f"none (cgroup {host.memory_cgroup}, host {host.psi})"
    return Judgement(
        ok=ok,
        found=f"pressure of a scope: {found}",
        remedy="boot with the memory controller on cgroup v2; the host's pressure stands in",
    )


def _mglru(host: Findings) -> Judgement:
    mask, writable = host.mglru.mask, host.mglru.writable
    refused = "" if writable is not False else ", which may not be written from here"
    remedy = "use a kernel with CONFIG_LRU_GEN (6.1 or later)"
    if mask is not None:
        remedy = "run as root where /sys is mounted read-write: on the host, in no container"
    return Judgement(
        ok=host.mglru.available and not refused,
        found="not in this kernel" if mask is None else f"enabled mask {mask:#06x}{refused}",
        remedy=f"leave `mglru: keep`, or {remedy}",
    )


def _mglru_min_ttl(host: Findings) -> Judgement:
    ttl_ms = host.mglru.min_ttl_ms
    return Judgement(
        ok=ttl_ms in (None, 0),
        found="no such setting" if ttl_ms is None else f"{ttl_ms} ms",
        remedy="write 0 to /sys/kernel/mm/lru_gen/min_ttl_ms: it kills rather than reclaims",
    )


def _oom_killers(host: Findings) -> Judgement:
    names = sorted({killer.name for killer in host.oom_killers})
    running = ", ".join(f"{killer.name} (pid {killer.pid})" for killer in host.oom_killers)
    return Judgement(
        ok=not names,
        found=f"running: {running}" if names else "none running",
        remedy=f"stop it for the run: `systemctl stop {' '.join(names)}`" if names else "",
    )


def _proactive_reclaim(host: Findings) -> Judgement:
    running = host.proactive_reclaim.running
    return Judgement(
        ok=not running,
        found=f"running: {', '.join(running)}" if running else "none found",
        remedy="idle page cache is evicted without pressure, so results carry a label; it is never "
        "stopped from here: turn its kdamond or module off for clean numbers",
    )


def _reclaimers(host: Findings) -> Judgement:
    found = list(host.reclaimers)
    if host.proactive_pages:
        found.append(f"{host.proactive_pages} pages stolen that way since boot")
    return Judgement(
        ok=not found,
        found="; ".join(found) or "none found",
        remedy="idle page cache is evicted without pressure, so results carry a label; it is never "
        "stopped from here",
    )


def _thp(host: Findings) -> Judgement:
    return Judgement(
        ok=None if host.thp is None else True,
        found="not in this kernel" if host.thp is None else host.thp,
        remedy="recorded only: khugepaged's reclaim is counted apart",
    )


def _nodes(host: Findings) -> Judgement:
    """The page cache of a node without CPUs is in MemTotal, but is another device's memory."""
    far = [node for node in host.nodes if not node.has_cpus and node.total_bytes]
    cached = ", ".join(
        f"node {node.index} {format_bytes(node.file_bytes)}{_of_what(node)}" for node in host.nodes
    )
    return Judgement(
        ok=not far,
        found=f"file pages: {cached}" if len(host.nodes) > 1 else "one node",
        remedy="memory without CPUs (a GPU's, CXL) counts in MemTotal and takes page cache: run "
        f"under `numactl --membind={_list(host.nodes)}`, and leave it out of a capacity",
    )


def _of_what(node: Node) -> str:
    return "" if node.has_cpus else " (no CPUs)"


def _list(nodes: tuple[Node, ...]) -> str:
    return ",".join(str(node.index) for node in nodes if node.has_cpus)


RECLAIM = (
    Need("psi", _psi, ("psi",)),
    Need("psi of a scope", _scope_psi, ("psi",)),
    Need("mglru", _mglru, ("mglru",)),
    Need("mglru min_ttl_ms", _mglru_min_ttl, PRESSURE),
    Need("user-space OOM killers", _oom_killers, PRESSURE),
    Need("proactive reclaim", _proactive_reclaim),
    Need("users of memory.reclaim", _reclaimers),
    Need("transparent huge pages", _thp),
    Need("memory nodes", _nodes),
)
