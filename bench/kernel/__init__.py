# SPDX-License-Identifier: Apache-2.0
"""Readers of kernel text, one file each: a pure parser, and a reader on an injected root."""
