# SPDX-License-Identifier: Apache-2.0
"""`pagetier trace`: routing traces, read, checked, imported, merged and synthesised."""
