# SPDX-License-Identifier: Apache-2.0
"""From a file down to the disks whose counters tell what was read for it."""
