# SPDX-License-Identifier: Apache-2.0
"""Build hook: cffi_modules has no pyproject.toml spelling; everything else is there."""

from setuptools import setup

setup(
    cffi_modules=["native/build_core.py:ffibuilder"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
