# SPDX-License-Identifier: Apache-2.0
"""Files of targets: what they may hold, and errors that name file, line and field."""

from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.synth import BUILT_IN, load_spec, uniform

TEXT = """\
model: tiny
layers: 2
experts: 16
top_k: 2
expert_bytes: 1.5 MB
domains:
  prose: {group: text, iterations: 20}
  code: {group: code, iterations: 20, accepts: 2, fallbacks: 1}
targets:
  zipf_alpha: [1, 1.2]
  coverage: 0.5
"""


@pytest.fixture
def write(tmp_path: Path) -> "Write":
    return Write(tmp_path / "tiny.yaml")


class Write:
    """Writes the tiny model with one of its lines changed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, old: str = "", new: str = "") -> str:
        assert old in TEXT
        self.path.write_text(TEXT.replace(old, new) if old else TEXT)
        return str(self.path)


def test_a_file_of_targets(write: Write) -> None:
    spec = load_spec(write())
    assert (spec.layers, spec.experts, spec.top_k, spec.expert_bytes) == (2, 16, 2, 1_500_000)
    assert spec.targets.known() == {"zipf_alpha": [1.0, 1.2], "coverage": [0.5, 0.5]}
    assert spec.parameters is None
    assert spec.depths.tolist() == [0.0, 1.0]
    assert [spec.group_number(name) for name in ("prose", "code")] == [0, 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("layers: 2", "layer: 2", ":2: unknown key 'layer'; did you mean 'layers'?"),
        ("layers: 2\n", "", ": key 'layers' is missing"),
        ("experts: 16", "experts: many", ":3: experts: "),
        ("experts: 16", "experts: 16.5", ":3: experts: "),
        ("top_k: 2", "top_k: 17", "top_k 17 is more than experts 16"),
        ("layers: 2\nexperts: 16", "layers: 10000\nexperts: 65536", "more than 4194304"),
        ("1.5 MB", "big", ":5: expert_bytes: "),
        ("accepts: 2", "accepts: -1", ":8: domains.code.accepts: "),
        ("accepts: 2", "accepts: 30", ":8: domains.code: more accepts and fallbacks"),
        ("zipf_alpha", "zipf", ":10: unknown key 'targets.zipf'; did you mean 'zipf_alpha'?"),
        ("[1, 1.2]", "[2, 1.2]", "zipf_alpha: a range is [least, greatest]"),
        ("[1, 1.2]", "[1, 1.2, 3]", ":10: targets.zipf_alpha: "),
        ("coverage: 0.5", "coverage: .nan", ":11: targets.coverage"),
        ("coverage: 0.5", "zipf_alpha: 1", ":11: key 'zipf_alpha' stands twice"),
        ("model: tiny", "model: [tiny", "not valid YAML"),
        ("targets:", "parameters: {skew: 0}\ntargets:", ":9: parameters.skew: "),
        ("targets:", "parameters: {gain: [[1, 1], [0, 1]]}\ntargets:", "depths must rise"),
        ("targets:", "free: [luck]\ntargets:", ":9: free.0: "),
        ("top_k: 2", "? [1]\n: 2", ":4: not valid YAML: found unhashable key"),
    ],
)
def test_mistakes_are_named_with_their_place(
    write: Write, old: str, new: str, message: str
) -> None:
    path = write(old, new)
    with pytest.raises(InputError) as caught:
        load_spec(path)
    assert str(caught.value).startswith(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_model_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="kimi-k3, deepseek-v3, qwen3-30b-a3b, gpt-oss-20b"):
        load_spec("kimi")
    with pytest.raises(InputError, match="name a YAML file"):
        load_spec(str(tmp_path / "absent.yaml"))


@pytest.mark.parametrize(
    ("name", "geometry"),
    [
        ("kimi-k3", (92, 896, 16)),
        ("deepseek-v3", (58, 256, 8)),
        ("qwen3-30b-a3b", (48, 128, 8)),
        ("gpt-oss-20b", (24, 32, 4)),
    ],
)
def test_built_in_models(name: str, geometry: tuple[int, int, int]) -> None:
    spec = load_spec(name)
    assert spec.model == name in BUILT_IN
    assert (spec.layers, spec.experts, spec.top_k) == geometry
    assert list(spec.domains) == ["prose", "code", "math", "chat"]
    assert spec.parameters is not None


def test_the_published_ranges_of_the_three_models() -> None:
    known = {name: load_spec(name).targets.known() for name in BUILT_IN}
    table = {
        "qwen3-30b-a3b": ([1.10, 1.26], [0.38, 0.45], [0.95, 0.96], [0.066, 0.454]),
        "deepseek-v3": ([0.86, 0.93], [0.26, 0.31], [0.83, 0.85], [0.032, 0.085]),
        "kimi-k3": ([1.00, 1.04], [0.32, 0.36], [0.80, 0.82], [0.101, 0.188]),
    }
    for name, ranges in table.items():
        keys = ("zipf_alpha", "reuse_1", "reuse_64", "jaccard")
        assert tuple(known[name][key] for key in keys) == ranges


def test_predictions_are_no_targets() -> None:
    """What a fit may see and what it is judged by share no name."""
    spec = load_spec("kimi-k3")
    assert not set(type(spec.targets).model_fields) & set(type(spec.predictions).model_fields)
    assert spec.predictions.batch_accepted_tokens == 1078


def test_the_control_keeps_the_geometry_alone() -> None:
    control = uniform(load_spec("kimi-k3"))
    assert control.parameters is not None
    parts = control.parameters
    assert (parts.popularity, parts.topic, parts.phrase, parts.idle_penalty) == (0, 0, 0, 0)
    assert control.source is not None and "control" in control.source
    assert control.experts == 896
