# SPDX-License-Identifier: Apache-2.0
"""Fuzzes every importer, and the record parser in C, for so many seconds each; exit 1 on a finding.

Importers run under atheris, the parser under libFuzzer with AddressSanitizer where clang is there;
one target for each CPU at a time.  An input that broke something is kept in the working directory
and named.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pagetier.analysis.traces.importers import FORMATS

ROOT = Path(__file__).resolve().parents[2]
FUZZ = Path(__file__).resolve().parent
DATA = ROOT / "tests" / "analysis" / "importers" / "data"
DONE = re.compile(r"Done (\d+) runs")
SANITIZERS = "-fsanitize=fuzzer,address,undefined"
RECORDS = (
    '\x0f{"req":"a","phase":"d","step":3,"layer":7,"experts":[1,20],"weights":[0.75,2.5e-1]}\n'
    '{"req":1,"phase":"p","step":0,"layer":0,"experts":[3],"weights":[1]}\n'
)


def make_seeds(directory: Path) -> None:
    """What the formats look like: the files of the tests, and arrays."""
    shutil.copytree(DATA, directory, dirs_exist_ok=True)
    with zipfile.ZipFile(DATA / "recorder.pt") as archive:
        (directory / "recorder.pkl").write_bytes(archive.read("recorder/data.pkl"))
    ids = np.arange(12, dtype=np.int16).reshape(3, 2, 2) % 6
    np.save(directory / "ids.npy", ids)
    np.savez(directory / "ids.npz", routed_experts=ids, prompt_token_ids=np.arange(1))
    np.savez_compressed(directory / "layers.npz", E_layer1=ids[:, 0], E_layer2=ids[:, 1])


def build_parser(directory: Path) -> list[str]:
    """The command that fuzzes the parser in C; none without clang."""
    compiler = shutil.which("clang")
    if compiler is None:
        return []
    program = directory / "fuzz_routes"
    sources = [str(FUZZ / "fuzz_routes.c"), str(ROOT / "native" / "routes.c")]
    flags = ["-g", "-O1", SANITIZERS, "-fno-sanitize-recover=all", f"-I{ROOT / 'native'}"]
    subprocess.run([compiler, *flags, *sources, "-o", str(program)], check=True)
    return [str(program)]


def fuzz(name: str, command: list[str], corpus: Path, seeds: Path, limits: list[str]) -> bool:
    """Whether the target survived; says how many inputs it saw."""
    corpus.mkdir()
    done = subprocess.run(
        [*command, *limits, f"-artifact_prefix=fuzz-{name}-", str(corpus), str(seeds)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = DONE.search(done.stderr)
    inputs = "?" if found is None else found[1]
    print(f"{name:<20} {inputs:>10} inputs  {'ok' if not done.returncode else 'FOUND'}", flush=True)
    if done.returncode:
        print(done.stderr[-4000:])
    return not done.returncode


def main() -> None:
    """Fuzz all targets, or those that were named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--inputs", type=int, help="of each target, instead of seconds")
    parser.add_argument("--target", action="append", help="only these; repeatable")
    options = parser.parse_args()
    limits = [f"-max_total_time={options.seconds}"]
    if options.inputs is not None:
        limits = [f"-runs={options.inputs}"]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make_seeds(directory / "seeds")
        (directory / "lines").mkdir()
        (directory / "lines" / "plain").write_bytes(RECORDS.encode())
        importer = [sys.executable, str(FUZZ / "fuzz_importers.py")]
        targets = {known.name: [*importer, known.name] for known in FORMATS}
        targets |= {"detect": [*importer, "detect"], "records": build_parser(directory)}
        wanted = {
            target: command
            for target, command in targets.items()
            if command and (options.target is None or target in options.target)
        }
        lines = {"records": directory / "lines"}
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            survived = list(
                pool.map(
                    lambda target: fuzz(
                        target,
                        wanted[target],
                        directory / target,
                        lines.get(target, directory / "seeds"),
                        limits,
                    ),
                    wanted,
                )
            )
    sys.exit(0 if all(survived) else 1)


if __name__ == "__main__":
    main()
