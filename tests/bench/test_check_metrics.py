# SPDX-License-Identifier: Apache-2.0
"""Metrics by a real parser, a file never seen half-written, alerts on names that exist."""

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pagetier.analysis.check import Assessment
from pagetier.analysis.check_figures import (
    CgroupSight,
    Computed,
    Observation,
    figures_between,
)
from pagetier.analysis.errors import InputError
from pagetier.bench.check.metrics import publish, render_metrics

ROOT = Path(__file__).resolve().parents[2]
NAME = '/a "b"\\c\nd.service'
SEEN = Observation(
    at_ns=2 * 10**9,
    page_bytes=4096,
    memory={"MemTotal": 101, "MemAvailable": 102, "Unevictable": 103, "Mlocked": 104},
    vmstat={
        "pgscan_kswapd": 6000,
        "pgsteal_kswapd": 2000,
        "pgscan_direct": 3,
        "pgsteal_direct": 4,
        "workingset_refault_file": 5,
    },
    pressures={"memory": {"some_total_us": 1_500_000, "full_total_us": None}, "io": None},
    mglru_enabled=True,
    device_bytes=200 << 20,
    reader_bytes=302,
    cgroup=CgroupSight(NAME, {"pgscan": 6, "pgsteal": 7, "workingset_refault_file": 8}, None, None),
    computed=Computed(50 << 20, 9, 1, 304),
)
EARLIER = replace(
    SEEN,
    at_ns=10**9,
    vmstat=dict.fromkeys(SEEN.vmstat or {}, 0),
    device_bytes=0,
    reader_bytes=None,
    computed=Computed(0, 0, 0, 304),
)
FIGURES = figures_between(EARLIER, replace(SEEN, reader_bytes=None))


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def rendered() -> str:
    return render_metrics(SEEN, FIGURES, Assessment("amplifying", ("x",)), 1234.5)


def test_every_value_under_its_name() -> None:
    found = samples(rendered())
    assert found["pagetier_check_state", "state=amplifying"] == 1
    assert found["pagetier_check_state", "state=healthy"] == 0
    assert found["pagetier_check_timestamp_seconds",] == 1234.5
    assert found["pagetier_memory_unevictable_bytes",] == 103
    assert found["pagetier_memory_available_bytes",] == 102
    assert found["pagetier_reclaim_info", "implementation=mglru"] == 1
    host = "pagetier_reclaim_scanned_pages_total", "source=kswapd", "where=host"
    assert found[host] == 6000
    cgroup = "pagetier_reclaim_stolen_pages_total", "source=all", f"where={NAME}"
    assert found[cgroup] == 7
    assert found["pagetier_refault_bytes_total", "where=host"] == 5 * 4096
    assert found["pagetier_refault_bytes_total", f"where={NAME}"] == 8 * 4096
    assert found["pagetier_reclaim_scan_to_steal_ratio", "source=kswapd", "where=host"] == 3.0
    assert found["pagetier_device_read_bytes_total",] == 200 << 20
    assert found["pagetier_reader_read_bytes_total",] == 302
    assert found["pagetier_computed_miss_bytes_total",] == 50 << 20
    assert found["pagetier_computed_capacity_bytes",] == 304
    assert found["pagetier_read_amplification_ratio",] == 4.0
    stalled = "pagetier_pressure_stalled_seconds_total", "kind=some", "resource=memory"
    assert found[stalled] == 1.5


def test_what_could_not_be_seen_has_no_sample() -> None:
    blind = Observation(1, 4096, None, None, {"memory": None, "io": None}, None)
    found = samples(render_metrics(blind, None, None, 1.0))
    assert set(found) == {
        ("pagetier_check_timestamp_seconds",),
        ("pagetier_reclaim_info", "implementation=unknown"),
    }
    # A ratio of too few pages is no ratio: only kswapd's stands here.
    ratios = [key for key in samples(rendered()) if key[0].endswith("scan_to_steal_ratio")]
    assert len(ratios) == 1


def test_names_follow_the_conventions() -> None:
    for family in text_string_to_metric_families(rendered()):
        assert family.documentation.endswith("."), family.name
        assert family.type in ("counter", "gauge")
        for sample in family.samples:
            assert re.fullmatch(r"pagetier_[a-z_]+", sample.name)
            assert sample.name.endswith("_total") is (family.type == "counter"), sample.name
            assert not re.search(r"_(ms|us|kb|kib|mb|percent)(_|$)", sample.name)


def test_never_seen_half_written(tmp_path: Path) -> None:
    path = tmp_path / "pagetier.prom"
    ended = threading.Event()
    publish(path, rendered())

    def write() -> None:
        for round_number in range(400):
            seen = replace(SEEN, device_bytes=round_number)
            publish(path, render_metrics(seen, FIGURES, Assessment("healthy", ()), 1.0))
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not ended.is_set():
        text = path.read_text()
        assert text.endswith("\n")
        assert len(samples(text)) == len(samples(rendered()))
        # What the collector takes is the finished file alone.
        assert [entry.name for entry in tmp_path.glob("*.prom")] == ["pagetier.prom"]
        reads += 1
    writer.join()
    assert reads > 10
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["pagetier.prom"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        publish(tmp_path / "no/x.prom", "")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        publish(tmp_path / "folder", "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_alerts_speak_of_metrics_that_exist() -> None:
    document = yaml.safe_load((ROOT / "examples/pagetier-alerts.yaml").read_text())
    known = {key[0] for key in samples(rendered())}
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} >= {"PagetierReadAmplification"}
    for rule in rules:
        names = set(re.findall(r"pagetier_[a-z_]+", rule["expr"]))
        assert names and names <= known, rule["alert"]
        assert rule["annotations"]["summary"]


def test_the_unit_runs_the_check_into_a_textfile() -> None:
    lines = (ROOT / "examples/pagetier-check.service").read_text().splitlines()
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    assert " check --watch " in start and " --textfile " in start
    assert start.endswith(".prom")
