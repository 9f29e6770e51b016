# SPDX-License-Identifier: Apache-2.0
"""The checkout and the package agree: what an editable install would hide, a wheel would lack."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("analysis", "bench", "capacity", "cgroups", "native", "tiers")


def test_every_package_folder_is_listed() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed = set(tomllib.load(file)["tool"]["setuptools"]["packages"])
    found = {
        "pagetier." + ".".join(path.parent.relative_to(ROOT).parts)
        for room in ROOMS
        for path in (ROOT / room).rglob("__init__.py")
    }
    assert found == listed


def test_every_room_is_typed_and_linked() -> None:
    for room in ROOMS:
        assert (ROOT / room / "py.typed").is_file()
        link = ROOT / ".layout" / "pagetier" / room
        assert link.is_symlink() and link.resolve() == ROOT / room


def test_shipped_example_is_the_built_in_campaign() -> None:
    assert (ROOT / "examples" / "quick.yaml").read_text() == (ROOT / "bench/quick.yaml").read_text()


def test_every_source_file_names_its_licence() -> None:
    sources = [
        path
        for room in (*ROOMS, "tests")
        for pattern in ("*.py", "*.c", "*.h")
        for path in (ROOT / room).rglob(pattern)
        if path.name != "_core.c"
    ]
    assert [
        p for p in sources if "SPDX-License-Identifier: Apache-2.0" not in p.read_text()[:200]
    ] == []
