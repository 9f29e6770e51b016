# SPDX-License-Identifier: Apache-2.0
"""From a version to a package: the meta-package's answer, else the newest plain image on offer."""

from pagetier.capacity.lab.debian import parse_depends, pick_image

DEPENDS = """\
linux-image-6.12-amd64
  Depends: linux-image-6.12.117+deb12-amd64
  Recommends: firmware-linux-free
 |Depends: one-of
  Depends: <virtual>
"""
OFFERED = [
    "linux-image-6.12-amd64",
    "linux-image-6.12.9+deb12-amd64",
    "linux-image-6.12.117+deb12-amd64",
    "linux-image-6.12.118+deb12-cloud-amd64",
    "linux-image-6.12.118+deb12-rt-amd64",
    "linux-image-6.12.118+deb12-amd64-unsigned",
    "linux-image-6.12.118+deb12-amd64-dbg",
    "linux-image-6.1.0-9-amd64",
    "linux-image-6.1.0-57-amd64",
]


def test_depends_are_read() -> None:
    assert parse_depends(DEPENDS) == ["linux-image-6.12.117+deb12-amd64", "one-of"]
    assert parse_depends("") == []


def test_the_newest_plain_image_of_just_this_version() -> None:
    assert pick_image("6.12", OFFERED) == "linux-image-6.12.117+deb12-amd64"
    assert pick_image("6.1", OFFERED) == "linux-image-6.1.0-57-amd64"
    assert pick_image("6.6", OFFERED) is None
    assert pick_image("6.1", ["linux-image-6.12.117+deb12-amd64"]) is None
