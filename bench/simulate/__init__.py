# SPDX-License-Identifier: Apache-2.0
"""`pagetier simulate`: cache policies on traces, and the studies made of them."""
