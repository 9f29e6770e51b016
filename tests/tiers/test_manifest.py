# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.tiers.manifest import (
    MAX_MANIFEST_BYTES,
    encode_manifest,
    make_manifest,
    manifest_digest,
    parse_manifest,
)

GOOD: dict[str, Any] = {
    "format": "pagetier-pool",
    "version": 1,
    "num_layers": 2,
    "num_experts": 3,
    "expert_bytes": 5,
    "layout": "flat",
    "seed": 7,
    "created_by": "pagetier pool create",
}


def parse(fields: Any) -> Any:
    return parse_manifest(json.dumps(fields).encode(), "/p/pool.json")


def test_reads_every_field() -> None:
    manifest = parse(GOOD)
    assert manifest.model_dump() == GOOD
    assert manifest.total_experts == 6


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 2**40),
    st.sampled_from(["files", "flat"]),
    st.integers(0, 2**64 - 1),
)
def test_survives_the_round_trip(
    layers: int, experts: int, expert_bytes: int, layout: str, seed: int
) -> None:
    manifest = make_manifest(layers, experts, expert_bytes, layout, seed)
    raw = encode_manifest(manifest)
    assert parse_manifest(raw, "x") == manifest
    assert manifest_digest(raw) == manifest_digest(encode_manifest(manifest))


def test_the_digest_tells_pools_apart() -> None:
    digests = {
        manifest_digest(encode_manifest(make_manifest(*geometry)))
        for geometry in [
            (2, 3, 5, "flat", 7),
            (3, 2, 5, "flat", 7),
            (2, 3, 5, "files", 7),
            (2, 3, 5, "flat", 8),
            (2, 3, 6, "flat", 7),
        ]
    }
    assert len(digests) == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_layers", 0),
        ("num_layers", -1),
        ("num_layers", "2"),
        ("num_layers", True),
        ("num_experts", 0),
        ("num_experts", 2.0),
        ("num_experts", 2**24 + 1),
        ("expert_bytes", 0),
        ("expert_bytes", -4096),
        ("expert_bytes", 2**63),
        ("expert_bytes", None),
        ("layout", "striped"),
        ("seed", -1),
        ("seed", 2**64),
        ("created_by", "somebody"),
    ],
)
def test_a_bad_field_is_named_with_its_file(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"^/p/pool\.json: field {field}: ") as caught:
        parse(GOOD | {field: value})
    assert "\n" not in str(caught.value)


def test_missing_and_unknown_fields_are_named() -> None:
    with pytest.raises(InputError, match="field seed: Field required"):
        parse({key: value for key, value in GOOD.items() if key != "seed"})
    with pytest.raises(InputError, match="field files: Extra inputs"):
        parse(GOOD | {"files": ["../../etc/passwd"]})


@pytest.mark.parametrize("version", [0, 3, "1", "2", 2.0, 1.0, True, None])
def test_an_unknown_version_says_what_to_do(version: Any) -> None:
    with pytest.raises(
        InputError, match=r"field version is .* use the pagetier that made the pool"
    ):
        parse(GOOD | {"version": version})


def test_another_format_is_no_pool() -> None:
    with pytest.raises(InputError, match="field format is not"):
        parse(GOOD | {"format": "moe-route-trace"})
    with pytest.raises(InputError, match="field format is not"):
        parse([GOOD])


def test_products_are_limited() -> None:
    with pytest.raises(InputError, match="more than 16777216 experts"):
        parse(GOOD | {"num_layers": 2**13, "num_experts": 2**12})
    with pytest.raises(InputError, match=r"2\^63 - 1 bytes"):
        parse(GOOD | {"num_layers": 2, "num_experts": 1, "expert_bytes": 2**62})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 60_000,
        b"9" * 5_000,
        b'{"format": "pagetier-pool", "version": 1, "version": 1}',
    ],
)
def test_what_is_not_json_is_an_input_error(raw: bytes) -> None:
    with pytest.raises(InputError, match=r"^/p/pool\.json: is not JSON"):
        parse_manifest(raw, "/p/pool.json")


def test_a_huge_manifest_is_not_even_parsed() -> None:
    with pytest.raises(InputError, match="is larger than"):
        parse_manifest(b" " * (MAX_MANIFEST_BYTES + 1), "/p/pool.json")


@pytest.mark.parametrize(
    ("geometry", "field"),
    [
        ((0, 1, 1, "files", 0), "num_layers"),
        ((1, -2, 1, "files", 0), "num_experts"),
        ((1, 1, 0, "files", 0), "expert_bytes"),
        ((1, 1, 1, "heap", 0), "layout"),
        ((1, 1, 1, "flat", 2**64), "seed"),
    ],
)
def test_a_bad_geometry_names_the_number(geometry: Any, field: str) -> None:
    with pytest.raises(InputError, match=f"^pool geometry: field {field}: .*, not "):
        make_manifest(*geometry)
