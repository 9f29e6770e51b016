# SPDX-License-Identifier: Apache-2.0
"""Reads a campaign's YAML; every error names file, line and field."""

from pathlib import Path
from typing import Any

from pagetier.analysis.yaml_model import load_yaml_model
from pagetier.bench.campaign import Campaign

__all__ = ["load_campaign"]


def load_campaign(
    path: Path, *, trace: str | None = None, pool: str | None = None, hint_chunk: str | None = None
) -> Campaign:
    """Read a campaign file; `trace` and `pool` are paths that replace the file's own, `hint_chunk`
    replaces `prefetch.chunk`.

    Raises InputError naming file, line and field of the first mistake.
    """

    def override(document: dict[str, Any]) -> None:
        if trace is not None:
            document["trace"] = _other_trace(document.get("trace"), trace)
        if pool is not None:
            document["pool"] = pool
        if hint_chunk is not None:
            document["prefetch"] = {**(document.get("prefetch") or {}), "chunk": hint_chunk}

    return load_yaml_model(path, Campaign, override)


def _other_trace(source: object, path: str) -> dict[str, object]:
    """`--trace` names another file; a cut that the campaign asks for stays."""
    steps = source.get("steps") if isinstance(source, dict) else None
    return {"path": path} if steps is None else {"path": path, "steps": steps}
