# SPDX-License-Identifier: Apache-2.0
"""The lab: a kernel of choice booted in a virtual machine that sees this host's files read-only.

Plain QEMU with an initramfs of our own, rather than virtme-ng: modules come from the lab's cache
(virtme-ng wants them in the host's /lib/modules), the guest's console and its results have channels
of their own, and every option of the machine (accelerator, disk, mem=) is under test control.
The guest can write its own disk image and nothing else: the host's root is a read-only 9p share.
"""
