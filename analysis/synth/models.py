# SPDX-License-Identifier: Apache-2.0
"""The models that come with the program, and those of a user's file."""

import importlib.resources
from pathlib import Path

from pagetier.analysis.errors import InputError
from pagetier.analysis.synth.parameters import Parameters
from pagetier.analysis.synth.spec import ModelSpec
from pagetier.analysis.yaml_model import load_yaml_model

__all__ = ["BUILT_IN", "load_spec", "uniform"]

BUILT_IN = ("kimi-k3", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b")


def load_spec(name: str) -> ModelSpec:
    """A built-in model by its name, or a YAML file of targets by its path."""
    if name in BUILT_IN:
        folder = importlib.resources.files("pagetier.analysis.synth")
        return load_yaml_model(Path(str(folder / f"{name}.yaml")), ModelSpec)
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise InputError(
            f"model {name!r} is not known: give one of {', '.join(BUILT_IN)} or a YAML file"
        )
    return load_yaml_model(path, ModelSpec)


def uniform(spec: ModelSpec) -> ModelSpec:
    """The control: every expert equally likely at each token, whatever was selected before."""
    even = {"popularity": 0.0, "topic": 0.0, "phrase": 0.0, "idle_penalty": 0.0}
    parameters = (spec.parameters or Parameters()).model_copy(update=even)
    update = {"source": f"control: uniform selection in the geometry of {spec.model}"}
    return spec.model_copy(update={**update, "parameters": parameters})
