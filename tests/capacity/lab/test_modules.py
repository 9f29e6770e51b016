# SPDX-License-Identifier: Apache-2.0
"""Load order of modules: what is needed first comes first, and what is missing is named."""

import gzip
import lzma
from pathlib import Path

import pytest

from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab.modules import (
    REQUIRED,
    load_order,
    module_name,
    parse_builtin,
    parse_modules_dep,
    read_module,
)
from pagetier.cgroups.errors import ParseError

DEP = """\
kernel/drivers/virtio/virtio_pci.ko:
kernel/drivers/block/virtio_blk.ko.xz:
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko
kernel/net/9p/9pnet.ko:
kernel/fs/9p/9p.ko: kernel/fs/netfs/netfs.ko kernel/net/9p/9pnet.ko
kernel/fs/netfs/netfs.ko:
kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko
kernel/fs/jbd2/jbd2.ko:
kernel/lib/crc16.ko:
kernel/drivers/nvme/host/nvme.ko: kernel/drivers/nvme/host/nvme-core.ko
kernel/drivers/nvme/host/nvme-core.ko:
kernel/drivers/gpu/drm/huge.ko:
"""


def test_each_module_comes_after_what_it_needs() -> None:
    needs = parse_modules_dep(DEP)
    order = load_order(needs, ())
    assert len(order) == len(set(order))
    for path in order:
        assert all(order.index(other) < order.index(path) for other in needs[path])
    assert "kernel/drivers/gpu/drm/huge.ko" not in order
    assert {module_name(path) for path in order} >= set(REQUIRED)
    # depmod lists the deepest need last: it is loaded first.
    assert order.index("kernel/lib/crc16.ko") < order.index("kernel/fs/jbd2/jbd2.ko")


def test_a_built_in_module_is_not_missed() -> None:
    text = DEP.replace("kernel/drivers/virtio/virtio_pci.ko:\n", "")
    builtin = parse_builtin("kernel/drivers/virtio/virtio_pci.ko\nkernel/other.ko\n")
    assert builtin == {"virtio_pci", "other"}
    order = load_order(parse_modules_dep(text), builtin)
    assert "virtio_pci" not in {module_name(path) for path in order}


def test_a_kernel_without_9p_is_refused_by_name() -> None:
    needs = {path: () for path in parse_modules_dep(DEP) if "9p" not in path}
    with pytest.raises(CapacityError, match=r"no module 9pnet_virtio.* not its cloud flavour"):
        load_order(needs, ())


@pytest.mark.parametrize("line", ["no colon", "kernel/readme.txt: a.ko"])
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(ParseError, match=r"modules\.dep:2"):
        parse_modules_dep(f"kernel/a.ko:\n{line}\n")


def test_modules_are_decompressed(tmp_path: Path) -> None:
    content = b"\x7fELF module"
    files = {"a.ko": content, "b.ko.xz": lzma.compress(content), "c.ko.gz": gzip.compress(content)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        assert read_module(tmp_path / name) == content
