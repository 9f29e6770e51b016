# SPDX-License-Identifier: Apache-2.0
"""A real engine in the harness: llama.cpp decodes, its router is traced, its reads are measured."""
