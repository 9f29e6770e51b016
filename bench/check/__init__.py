# SPDX-License-Identifier: Apache-2.0
"""The operator's check: is reclaim amplifying reads on this host?"""
