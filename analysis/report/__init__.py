# SPDX-License-Identifier: Apache-2.0
"""The report: one module per section, each a pure function of a study; one renderer for all."""
