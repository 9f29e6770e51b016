# SPDX-License-Identifier: Apache-2.0
"""Facts of the host that a result depends on: what two runs must share before they are compared.

Only what was found: a fact that the kernel does not give is None.  Nothing here changes anything.
"""

import importlib.metadata
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagetier.bench.device import Device
from pagetier.bench.kernel.cpu import read_cpu
from pagetier.bench.kernel.damon import read_proactive_reclaim
from pagetier.bench.kernel.numa import read_nodes
from pagetier.bench.kernel.swaps import read_swaps
from pagetier.bench.kernel.text import read_line, read_selected
from pagetier.capacity.meminfo import read_meminfo
from pagetier.capacity.mglru import read_mglru
from pagetier.cgroups.detect import detect
from pagetier.cgroups.psi import read_pressure
from pagetier.cgroups.roots import Roots
from pagetier.native.residency import page_bytes

__all__ = ["host_facts", "kernel_release", "psi_state"]

_SYSCTLS = (
    "swappiness",
    "vfs_cache_pressure",
    "min_free_kbytes",
    "watermark_scale_factor",
    "watermark_boost_factor",
    "dirty_ratio",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_background_bytes",
    "overcommit_memory",
    "zone_reclaim_mode",
    "max_map_count",
    "page-cluster",
    "nr_hugepages",
)
_PACKAGES = ("pagetier", "numpy", "cffi")


def host_facts(roots: Roots, device: Device | None) -> dict[str, Any]:
    """One JSON object of provenance for a results directory."""
    return {
        **_system_facts(roots.proc),
        **_memory_facts(roots),
        "cgroup_memory": detect(roots).memory,
        "psi": psi_state(roots.proc) == "available",
        "device": None if device is None else device.as_dict(),
        "versions": {name: _version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
    }


def kernel_release(proc: Path) -> str | None:
    """What `uname -r` says."""
    return read_line(proc / "sys/kernel/osrelease")


def psi_state(proc: Path) -> str:
    """`available`; `disabled` when compiled in but off (it needs psi=1 at boot); else `absent`."""
    path = proc / "pressure/memory"
    if read_pressure(path) is not None:
        return "available"
    return "disabled" if path.exists() else "absent"


def _system_facts(proc: Path) -> dict[str, Any]:
    cpu = read_cpu(proc)
    return {
        "kernel": kernel_release(proc),
        "kernel_version": read_line(proc / "sys/kernel/version"),
        "kernel_cmdline": read_line(proc / "cmdline"),
        "machine": platform.machine(),
        "page_bytes": page_bytes(),
        "cpu_model": None if cpu is None else cpu.model,
        "cpus": None if cpu is None else cpu.count,
        "hypervisor": None if cpu is None else cpu.hypervisor,
        "vm": {name: read_line(proc / "sys/vm" / name) for name in _SYSCTLS},
    }


def _memory_facts(roots: Roots) -> dict[str, Any]:
    meminfo, mglru, swaps = read_meminfo(roots), read_mglru(roots.sys), read_swaps(roots.proc)
    proactive = read_proactive_reclaim(roots.sys)
    return {
        "mem_total_bytes": meminfo.total_bytes,
        "swap_total_bytes": meminfo.swap_total_bytes,
        "swaps": None if swaps is None else [asdict(swap) for swap in swaps],
        "thp": read_selected(roots.sys / "kernel/mm/transparent_hugepage/enabled"),
        "mglru": {**asdict(mglru), "enabled": mglru.enabled},
        "proactive_reclaim": list(proactive.running),
        "numa_nodes": [asdict(node) for node in read_nodes(roots.sys)],
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
