# SPDX-License-Identifier: Apache-2.0
"""Expert pools: where every expert's bytes lie, and whether they are cold, whole and right."""
