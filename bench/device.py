# SPDX-License-Identifier: Apache-2.0
"""The face of `pagetier.bench.devices`: from a file to the disks whose counters tell its reads."""

from pagetier.bench.devices.model import Device, Leaf, Partition, UnresolvedDevice
from pagetier.bench.devices.resolve import resolve, resolve_named

__all__ = ["Device", "Leaf", "Partition", "UnresolvedDevice", "resolve", "resolve_named"]
