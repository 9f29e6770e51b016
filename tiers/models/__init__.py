# SPDX-License-Identifier: Apache-2.0
"""Pools of real weight files: where the experts of a GGUF or safetensors model lie."""
