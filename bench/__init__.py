# SPDX-License-Identifier: Apache-2.0
"""The harness: command line, host probe, samplers, cells, campaigns and the results store."""
