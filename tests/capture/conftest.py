# SPDX-License-Identifier: Apache-2.0
"""Models for the engine, made once, and the command line beside them."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.capture.models import Shape, write_small
from tests.conftest import require

Pagetier = Callable[..., "subprocess.CompletedProcess[str]"]
# 125 MB of experts: more than an engine needs for itself.
MEDIUM = Shape(layers=8, experts=32, top_k=4, hidden=512, inner=416)


@pytest.fixture(scope="session")
def engine() -> None:
    """The extra is installed."""
    require(importlib.util.find_spec("llama_cpp") is not None, "pagetier[capture] is not installed")


@pytest.fixture(scope="session")
def small(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first of two shards of a model without a tokenizer."""
    return write_small(tmp_path_factory.mktemp("small") / "small.gguf")


@pytest.fixture(scope="session")
def speaking(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in one file whose tokens are the bytes of a text."""
    path = tmp_path_factory.mktemp("speaking") / "speaking.gguf"
    return write_small(path, tensors_per_shard=0, tokenizer=True)


@pytest.fixture(scope="session")
def medium(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model larger than what an engine needs for itself; a type of it would be repacked."""
    path = tmp_path_factory.mktemp("medium") / "medium.gguf"
    return write_small(path, MEDIUM, tensors_per_shard=0)


@pytest.fixture
def pagetier() -> Pagetier:
    """The command line, run in a folder."""

    def run(folder: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "pagetier.bench.cli", *map(str, arguments)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
