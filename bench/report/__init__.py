# SPDX-License-Identifier: Apache-2.0
"""`pagetier report` and `pagetier size`: what a results directory says."""
