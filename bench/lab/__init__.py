# SPDX-License-Identifier: Apache-2.0
"""Campaigns inside booted kernels."""
