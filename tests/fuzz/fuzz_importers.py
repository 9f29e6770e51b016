# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of one importer: ``fuzz_importers.py FORMAT [libFuzzer options]``.

Any bytes, or any member of a sound archive, are either refused with an InputError or become a trace
that is written and reads back the same.  Anything else, an input that takes 10 s and one that takes
2 GB is a finding.  ``detect`` lets the bytes say which format they are.
"""

import io
import os
import sys
import tempfile
import zipfile
from pathlib import Path

import atheris
import numpy as np
from atheris.import_hook import instrument_imports

with instrument_imports(include=["pagetier.analysis.traces"]):
    from pagetier.analysis.errors import InputError
    from pagetier.analysis.traces import encode_trace, read_trace, trace_info
    from pagetier.analysis.traces.importers import FORMATS, ImportOptions, import_files

DETECT = "detect"
# A checksum keeps mutations of an archive at its door: these are wrapped into a sound one.
MEMBERS = {"npz": "routed_experts.npy", "sglang-recorder": "recorder/data.pkl"}
LIMITS = ("-timeout=10", "-rss_limit_mb=2048", "-max_len=4096")


def wrapped(member: str, data: bytes) -> bytes:
    """An archive with these bytes, and with storage for tensors that they may name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(member, data)
        for key in range(4):
            archive.writestr(f"recorder/data/{key}", bytes(range(192)))
    return content.getvalue()


class Target:
    """Imports bytes by way of one file, again and again."""

    def __init__(self, name: str, directory: Path) -> None:
        self._input = directory / "input"
        self._output = directory / "output"
        known = None if name == DETECT else name
        self._member = MEMBERS.get(name)
        self._options = [
            ImportOptions(format=known, num_experts=6),
            ImportOptions(format=known, num_experts=6, num_layers=2, top_k=2, repair=True),
        ]

    def __call__(self, data: bytes) -> None:
        self._input.write_bytes(data if self._member is None else wrapped(self._member, data))
        for options in self._options:
            try:
                trace = import_files([self._input], options).trace
            except InputError:
                continue
            self._output.write_bytes(encode_trace(trace))
            again = read_trace(self._output)
            for column in ("request", "step", "layer", "record_start", "experts"):
                assert np.array_equal(getattr(again, column), getattr(trace, column)), column
            assert trace_info(again) == trace_info(trace)


def main() -> None:
    """Run until libFuzzer ends."""
    name = sys.argv[1]
    if name not in {DETECT, *(known.name for known in FORMATS)}:
        sys.exit(f"unknown format {name}")
    # Memory, not a disk: every input is a file.
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as directory:
        atheris.Setup([sys.argv[0], *LIMITS, *sys.argv[2:]], Target(name, Path(directory)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
