# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from pagetier.bench.kernel.cpu import Cpu, parse_cpuinfo, read_cpu
from pagetier.cgroups.errors import ParseError

X86 = """processor\t: 0
model name\t: Some CPU
flags\t\t: fpu {flag} sse

processor\t: 1
model name\t: Some other CPU
flags\t\t: fpu
"""
ARM = """processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd4f
"""


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        (X86.format(flag="hypervisor"), Cpu("Some CPU", 2, True)),
        (X86.format(flag="hypervisors"), Cpu("Some CPU", 2, False)),
        (ARM, Cpu("0x41 0xd4f", 1, None)),
        ("processor: 0\n", Cpu(None, 1, None)),
    ],
)
def test_cpu(text: str, cpu: Cpu) -> None:
    assert parse_cpuinfo(text) == cpu


def test_malformed_cpu(tmp_path: Path) -> None:
    assert read_cpu(tmp_path) is None
    (tmp_path / "cpuinfo").write_text("nothing\n")
    with pytest.raises(ParseError, match="no line `processor`"):
        read_cpu(tmp_path)
