# SPDX-License-Identifier: Apache-2.0
"""The C core and its typed face: the reader, residency, pool content, process ties."""
