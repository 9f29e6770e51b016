# SPDX-License-Identifier: Apache-2.0
"""One small routing in every format: layers 1 and 2 of a model, 6 experts, top-2, three steps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.importers import Imported, ImportOptions, import_files

DATA = Path(__file__).parent / "data"
EXPERTS = [4, 1, 0, 2, 1, 3, 2, 0, 5, 1, 4, 3]
WEIGHTS = [0.75, 0.25, 0.625, 0.375, 0.5, 0.5, 0.875, 0.125, 0.5, 0.5, 0.625, 0.375]

Import = Callable[..., Imported]
Fails = Callable[..., str]
Ids = npt.NDArray[np.int32]


@pytest.fixture
def data() -> Path:
    """Folder of hand-written files."""
    return DATA


@pytest.fixture
def ids() -> Ids:
    """The routing as [position, layer, choice]."""
    return np.array(EXPERTS, np.int32).reshape(3, 2, 2)


@pytest.fixture
def bring() -> Import:
    """Imports files with options."""

    def run(*paths: Path, **options: Any) -> Imported:
        return import_files(paths, ImportOptions(**{"num_experts": 6, **options}))

    return run


@pytest.fixture
def fails(bring: Import) -> Fails:
    """The one sentence with which an import is refused."""

    def run(*paths: Path, **options: Any) -> str:
        with pytest.raises(InputError) as caught:
            bring(*paths, **options)
        message = str(caught.value)
        assert "\n" not in message
        assert message.startswith(str(paths[0])), message
        return message

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Writes a file of this name."""

    def run(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return run
