# SPDX-License-Identifier: Apache-2.0
"""Synthetic traces of models whose routing was measured and published, but not its traces.

A model is a file: published statistics to calibrate to (`targets`), published figures kept apart to
judge the result by (`predictions`), and the parameters that calibration found.  The same model,
domain and seed give the same trace.
"""

from pagetier.analysis.synth.calibrate import calibrate, fitted_names
from pagetier.analysis.synth.check import check_predictions, check_targets, draw_all
from pagetier.analysis.synth.generate import draw_domain
from pagetier.analysis.synth.models import BUILT_IN, load_spec, uniform

__all__ = [
    "BUILT_IN",
    "calibrate",
    "check_predictions",
    "check_targets",
    "draw_all",
    "draw_domain",
    "fitted_names",
    "load_spec",
    "uniform",
]
