# SPDX-License-Identifier: Apache-2.0
"""Traces, plans, simulated caches, and what raw numbers mean: files in, facts out."""
