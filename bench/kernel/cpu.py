# SPDX-License-Identifier: Apache-2.0
"""/proc/cpuinfo: which processor, how many, and whether a hypervisor is in between."""

from dataclasses import dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.errors import ParseError

__all__ = ["Cpu", "parse_cpuinfo", "read_cpu"]


@dataclass(frozen=True, slots=True)
class Cpu:
    """Processors online; `hypervisor` is None where the architecture has no such flag."""

    model: str | None
    count: int
    hypervisor: bool | None


def parse_cpuinfo(text: str, *, where: str = "/proc/cpuinfo") -> Cpu:
    """x86 names its model; arm64 gives implementer and part numbers, which stand for it here."""
    fields: dict[str, str] = {}
    count = 0
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            count += key.strip() == "processor"
            fields.setdefault(key.strip(), value.strip())
    if not count:
        raise ParseError(where, None, "no line `processor`")
    part = [fields[key] for key in ("CPU implementer", "CPU part") if key in fields]
    flags = fields.get("flags")
    return Cpu(
        model=fields.get("model name") or " ".join(part) or None,
        count=count,
        hypervisor=None if flags is None else "hypervisor" in flags.split(),
    )


def read_cpu(proc: Path) -> Cpu | None:
    """The processors of this host; None when /proc does not show them."""
    path = proc / "cpuinfo"
    text = read_text(path)
    return None if text is None else parse_cpuinfo(text, where=str(path))
