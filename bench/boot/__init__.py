# SPDX-License-Identifier: Apache-2.0
"""Boots with mem= on a real host, for campaigns with `boot` cells."""
