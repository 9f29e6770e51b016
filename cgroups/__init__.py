# SPDX-License-Identifier: Apache-2.0
"""Memory cgroups of both versions behind one interface: detect, create, limit, read, remove."""
