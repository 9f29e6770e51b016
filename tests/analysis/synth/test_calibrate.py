# SPDX-License-Identifier: Apache-2.0
"""Calibration finds parameters whose traces have the statistics that it was given."""

from typing import Any

import pytest

from pagetier.analysis.synth import calibrate, check_targets, draw_all
from pagetier.analysis.synth.generate import draw_accepted, draw_domain
from pagetier.analysis.synth.parameters import Parameters
from pagetier.analysis.synth.spec import ModelSpec
from pagetier.analysis.synth.statistics import domain_statistics

HIDDEN = Parameters(popularity=1.8, topic=1.0, phrase=2.4, gain=[[0.0, 1.0]], skew=6.0)


def tiny(targets: dict[str, Any], **more: Any) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "model": "tiny",
            "layers": 6,
            "experts": 48,
            "top_k": 4,
            "domains": {
                "prose": {"group": "text", "iterations": 80, "accepts": 4, "fallbacks": 6},
                "chat": {"group": "text", "iterations": 80},
                "code": {"group": "code", "iterations": 80},
            },
            "targets": targets,
            **more,
        }
    )


def measured(spec: ModelSpec, parameters: Parameters, seed: int) -> dict[str, float]:
    trace = draw_domain(spec, parameters, "prose", seed, gain=1.0)
    accepted = draw_accepted(spec, parameters, "prose", seed, gain=1.0)
    return domain_statistics(trace, accepted)


def test_calibration_meets_the_statistics_of_hidden_parameters() -> None:
    found = measured(tiny({}), HIDDEN, seed=99)
    names = ("zipf_alpha", "accepted_reuse_1", "top8_share")
    targets = {
        name.removeprefix("accepted_"): [found[name] * 0.97, found[name] * 1.03] for name in names
    }
    start = {"gain": [[0.0, 1.0]]}
    spec = tiny(targets, parameters=start, free=["popularity", "topic", "phrase"])
    fitted = calibrate(spec)
    assert (fitted.popularity, fitted.phrase) != (1.3, 1.9)
    assert fitted.topic_tokens == 9.0  # not free
    for seed in (1, 2):
        again = measured(spec, fitted, seed)
        for name in names:
            assert again[name] == pytest.approx(found[name], rel=0.08), name


def test_calibration_without_targets_keeps_the_start() -> None:
    assert calibrate(tiny({}, free=["skew"])) == Parameters()


def test_overlap_and_reads_are_met_by_one_parameter_each() -> None:
    targets = {"jaccard": [0.25, 0.5], "reads_per_iteration": 111.6}
    spec = tiny(targets, free=[], jaccard_top=8, layers=24)  # fewer would leave it to luck
    stages: list[str] = []
    fitted = calibrate(spec, stages.append)
    assert stages[1:] == ["fitting shared", "fitting grouped", "fitting draft_fresh"]
    rows = {row.statistic: row for row in check_targets(spec, fitted, draw_all(spec, fitted, 7), 7)}
    overlap = rows["jaccard"].achieved
    assert overlap["jaccard_lowest"] == pytest.approx(0.325, abs=0.03)
    assert overlap["jaccard_highest"] == pytest.approx(0.425, abs=0.03)
    assert rows["reads_per_iteration"].achieved["prose"] == pytest.approx(111.6, abs=0.6)


def test_the_same_targets_give_the_same_parameters() -> None:
    spec = tiny({"reuse_1": 0.4}, free=["phrase"])
    assert calibrate(spec) == calibrate(spec)
