# SPDX-License-Identifier: Apache-2.0
"""Reads a YAML file into a pydantic model; every error names file, line and field."""

import difflib
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from pagetier.analysis.errors import InputError

__all__ = ["load_yaml_model"]

Model = TypeVar("Model", bound=BaseModel)
_MAX_BYTES = 1 << 20


def load_yaml_model(
    path: Path, model: type[Model], amend: Callable[[dict[str, Any]], None] = lambda _: None
) -> Model:
    """The file as `model`; raises InputError for the first mistake.

    `amend` changes what the file says before it is judged.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path}: cannot be read: {reason}; name a YAML file") from None
    if len(text) > _MAX_BYTES:
        raise InputError(f"{path}: longer than {_MAX_BYTES} characters: this is no such file")
    document, root = _parse(text, path)
    amend(document)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise InputError(_explain(error, root, path, model)) from None


def _parse(text: str, path: Path) -> tuple[dict[str, Any], yaml.Node]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: not valid YAML: {error}") from None
    if root is None or not isinstance(document, dict):
        raise InputError(f"{path}: expected a mapping of keys to values")
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
            line = key.start_mark.line + 1
            raise InputError(f"{path}:{line}: key '{key.value}' stands twice; remove one")
        seen.add(key.value)
        _refuse_repeated_keys(value, path)


def _explain(error: ValidationError, root: yaml.Node, path: Path, model: type[BaseModel]) -> str:
    # A misspelt key also leaves one missing: the first says what to do.
    errors = error.errors()
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])
    line, location = _locate(root, list(first["loc"]))
    # What does not stand in the file was amended: its outermost key names it.
    field = ".".join(str(part) for part in location or first["loc"][:1])
    if first["type"] == "extra_forbidden":
        return f"{path}:{line}: unknown key '{field}'{_nearest(location, model)}"
    if first["type"] == "missing":
        missing = ".".join(str(part) for part in first["loc"])
        return f"{path}:{line}: key '{missing}' is missing"
    where = f"{path}:{line}: {field}" if field else f"{path}:{line}"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"


def _locate(node: yaml.Node, location: list[Any]) -> tuple[int, list[Any]]:
    """Line of the deepest part of `location` that stands in the file, and the path to it."""
    line, found = node.start_mark.line + 1, []
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pairs = [(key, value) for key, value in node.value if key.value == str(part)]
            if not pairs:
                continue
            key, node = pairs[0]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            if part >= len(node.value):
                continue
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            continue
        found.append(part)
    return line, found


def _nearest(location: list[Any], model: type[BaseModel]) -> str:
    known = list(_model_at(model, location[:-1]).model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; known keys: {', '.join(known)}"


def _model_at(model: type[BaseModel], location: list[Any]) -> type[BaseModel]:
    """The model whose fields stand at `location` below `model`."""
    for part in location:
        field = model.model_fields.get(str(part))
        inner = None if field is None else _model_in(field.annotation)
        model = inner or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(argument) for argument in typing.get_args(annotation))
    return next((model for model in inner if model is not None), None)
