# SPDX-License-Identifier: Apache-2.0
"""Reads a campaign's YAML; every error names file, line and field."""

import difflib
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pagetier.analysis.errors import InputError
from pagetier.bench.campaign import (
    BalloonOptions,
    Campaign,
    CreatedPool,
    GeneratedTrace,
    PoolSource,
    TraceSource,
    ValidityLimits,
    Variation,
)

__all__ = ["load_campaign"]


def load_campaign(path: Path, *, trace: str | None = None, pool: str | None = None) -> Campaign:
    """Read a campaign file; `trace` and `pool` are paths that replace the file's own.

    Raises InputError naming file, line and field of the first mistake.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path}: cannot read the campaign: {reason}; name a YAML file") from None
    document, root = _parse(text, path)
    if trace is not None:
        document["trace"] = _override(document.get("trace"), trace)
    if pool is not None:
        document["pool"] = pool
    try:
        return Campaign.model_validate(document)
    except ValidationError as error:
        raise InputError(_explain(error, root, path)) from None


def _override(source: object, path: str) -> dict[str, object]:
    """`--trace` names another file; a cut that the campaign asks for stays."""
    steps = source.get("steps") if isinstance(source, dict) else None
    return {"path": path} if steps is None else {"path": path, "steps": steps}


def _parse(text: str, path: Path) -> tuple[dict[str, Any], yaml.Node]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}") from None
    if root is None or not isinstance(document, dict):
        raise InputError(f"{path}: a campaign is a mapping with at least 'trace' and 'pool'")
    _refuse_repeated_keys(root, path)
    return document, root


def _refuse_repeated_keys(node: yaml.Node, path: Path) -> None:
    """YAML forbids them and PyYAML takes the last one silently: half an edit would go unseen."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, path)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise InputError(
                f"{path}:{key.start_mark.line + 1}: key '{key.value}' stands twice; remove one"
            )
        seen.add(key.value)
        _refuse_repeated_keys(value, path)


def _explain(error: ValidationError, root: yaml.Node, path: Path) -> str:
    first = error.errors()[0]
    location = [part for part in first["loc"] if not _is_union_tag(part)]
    field = ".".join(str(part) for part in location) or "campaign"
    where = f"{path}:{_line_of(root, location)}"
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key '{field}'{_nearest(location)}"
    if first["type"] == "missing":
        return f"{where}: key '{field}' is missing"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {field}: {message}"


def _is_union_tag(part: object) -> bool:
    """pydantic names the member of a union that failed; that is no part of the user's file."""
    return isinstance(part, str) and ("[" in part or part in ("literal", "int", "constrained-int"))


def _nearest(location: list[Any]) -> str:
    models: dict[str, type[BaseModel]] = {
        "trace": TraceSource,
        "generate": GeneratedTrace,
        "pool": PoolSource,
        "create": CreatedPool,
        "balloon": BalloonOptions,
        "variations": Variation,
        "limits": ValidityLimits,
    }
    parents = [part for part in location[:-1] if isinstance(part, str)]
    model = models[parents[-1]] if parents else Campaign
    known = list(model.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; known keys: {', '.join(known)}"


def _line_of(node: yaml.Node, location: list[Any]) -> int:
    """Line of the deepest part of `location` that stands in the file."""
    line = node.start_mark.line + 1
    for part in location:
        if isinstance(node, yaml.MappingNode) and isinstance(part, str):
            pairs = [(key, value) for key, value in node.value if key.value == part]
            if not pairs:
                return line
            key, node = pairs[0]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            if part >= len(node.value):
                return line
            node = node.value[part]
            line = node.start_mark.line + 1
        elif not isinstance(part, int):  # an item where one stands for a list of one: same node
            return line
    return line
