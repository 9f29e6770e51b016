# SPDX-License-Identifier: Apache-2.0
"""Mechanisms that leave a program a given capacity of memory, and prove what they enforced."""
