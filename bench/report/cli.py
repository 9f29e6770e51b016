# SPDX-License-Identifier: Apache-2.0
"""`pagetier report`: what results directories say, without root and without the machine.

Exit codes: 0; 1 a finding (rejected cells, a directory or a part of one that cannot be read beside
others that can); 2 nothing can be read.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file
from pagetier.analysis.render import markdown_block
from pagetier.analysis.report.beside import Beside, Rates, parse_rates, plan_of, read_simulation
from pagetier.analysis.report.compare import compare_section
from pagetier.analysis.report.document import appendices, report_document, sections
from pagetier.analysis.report.export import export
from pagetier.analysis.report.gallery import gallery
from pagetier.analysis.report.html import Page, html_page
from pagetier.analysis.report.reading import Study, read_study
from pagetier.analysis.report.render import section_json, section_markdown, section_text
from pagetier.analysis.report.section import Section
from pagetier.analysis.report.summary import summary_of
from pagetier.bench.output import FINDING, Json, print_json

__all__ = ["RatesOption", "SimulationOption", "TraceOption", "beside_of", "mount"]


class Format(StrEnum):
    """Formats of the exported columns."""

    csv = "csv"
    parquet = "parquet"


RatesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=SIZE,...",
        help="Bytes per second, such as 'device=27 GB, host=327 GB, hbm=2938 GB, stream=346 GB',"
        " and hbm_bytes=SIZE.",
    ),
]
TraceOption = Annotated[
    Path | None, typer.Option(help="The campaign's trace: its regime and what to promote.")
]
SimulationOption = Annotated[
    Path | None, typer.Option(help="Output of pagetier simulate --json: the offline optimum.")
]


SimulationsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--simulation",
        help="Output of pagetier simulate --json: of the campaign's trace, then of other domains.",
    ),
]


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(epilog="Example: pagetier report pagetier-results/quick-20260101-120000")(report)


def report(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Results directories; several: compared.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Folder for report.html, report.md, report.json and the figures."
        ),
    ] = None,
    columns: Annotated[
        Format | None,
        typer.Option("--export", help="Cells, iterations and samples as files in -o."),
    ] = None,
    trace: TraceOption = None,
    simulations: SimulationsOption = None,
    rates: RatesOption = None,
    as_json: Json = False,
) -> None:
    """Tables, figures and a Markdown block of results; of several, what differs and compares."""
    if columns is not None and output is None:
        raise InputError("--export writes files: name their folder with -o")
    studies, unread = _studies(directories)
    domains = [(path.stem, read_simulation(path)) for path in simulations or ()]
    own = None if not simulations else simulations[0]
    told = [
        _tell(study, replace(beside_of(study, trace, own, rates), domains=tuple(domains)))
        for study in studies
    ]
    if output is not None:
        _write(told, output, columns)
    if as_json:
        print_json(_document(told, unread))
    else:
        _print(told)
    if unread or any(_has_finding(study) for study in studies):
        raise typer.Exit(FINDING)


def beside_of(
    study: Study, trace: Path | None, simulation: Path | None, rates: str | None
) -> Beside:
    """What was given beside the results."""
    return Beside(
        rates=Rates() if rates is None else parse_rates(rates),
        plan=plan_of(study, trace),
        simulation=() if simulation is None else read_simulation(simulation),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """A study with what is said of it."""

    study: Study
    sections: list[Section]
    appendices: list[Section]
    block: str

    def document(self) -> dict[str, Any]:
        return report_document(self.study, [*self.sections, *self.appendices])

    def markdown(self, pictured: Sequence[Section]) -> str:
        told = [*self.sections, *pictured, *self.appendices]
        return "\n".join([self.block, *map(section_markdown, told)])

    def html(self, pictured: Sequence[Section], pictures: Mapping[str, bytes]) -> str:
        paste = Section("paste", "To paste into an issue", blocks=(self.block,))
        return html_page(
            Page(
                title=f"pagetier: {self.study.results.meta.get('name', 'results')}",
                facts=tuple(_facts(self.study)),
                summary=summary_of(self.study, self.sections),
                sections=[*self.sections, *pictured, paste, *self.appendices],
                pictures=pictures,
            )
        )


def _tell(study: Study, beside: Beside) -> _Told:
    return _Told(
        study,
        sections(study, beside),
        appendices(study, beside),
        markdown_block(study.results),
    )


def _studies(directories: Sequence[Path]) -> tuple[list[Study], list[str]]:
    """Those that can be read; a single one that cannot is an error, of several each is named."""
    studies, unread = [], []
    for directory in directories:
        try:
            studies.append(read_study(directory))
        except InputError as error:
            if len(directories) == 1:
                raise
            print(f"pagetier: {error}", file=sys.stderr)
            unread.append(str(error))
    if not studies:
        raise InputError("none of the directories can be read: see above")
    return studies, unread


def _has_finding(study: Study) -> bool:
    rejected = any(cell.state == "rejected" for cell in study.results.cells)
    return rejected or bool(study.problems)


def _document(told: list[_Told], unread: list[str]) -> dict[str, Any]:
    """Of one directory its own document, whose shape is fixed; of several, all and a comparison."""
    reports = [one.document() for one in told]
    if len(reports) == 1 and not unread:
        return reports[0]
    comparison = _comparison(told)
    return {
        "reports": reports,
        "comparison": None if comparison is None else section_json(comparison),
        "unread": unread,
    }


def _comparison(told: list[_Told]) -> Section | None:
    return compare_section([one.study for one in told]) if len(told) > 1 else None


def _print(told: list[_Told]) -> None:
    comparison = _comparison(told)
    if comparison is not None:
        print(section_text(comparison))
    for one in told:
        for section in one.sections:
            print(section_text(section))
        print(f"{one.block}\nresults: {one.study.results.path}")


def _write(told: list[_Told], output: Path, columns: Format | None) -> None:
    """One folder per results directory when there are several."""
    for number, one in enumerate(told, start=1):
        name = f"{number}-{one.study.results.path.resolve().name}"
        folder = output if len(told) == 1 else output / name
        _make(folder)
        pictured = gallery(one.study)
        pictures = _draw(folder, [*one.sections, *pictured])
        _put(folder / "report.html", one.html(pictured, pictures))
        _put(folder / "report.md", one.markdown(pictured))
        _put(folder / "report.json", _json_text(one.document()))
        if columns is not None:
            export(one.study, folder, columns.value)
    comparison = _comparison(told)
    if comparison is not None:
        page = Page("pagetier: comparison", (), None, [comparison], {})
        _put(output / "comparison.html", html_page(page))
        _put(output / "comparison.md", section_markdown(comparison))
        _put(output / "comparison.json", _json_text(section_json(comparison)))


def _draw(folder: Path, told: Sequence[Section]) -> dict[str, bytes]:
    """The figures as files in `figures`; the SVG of each by its key."""
    # With matplotlib a report takes twice as long to start: it is loaded for pictures alone.
    from pagetier.analysis.figures.pictures import draw

    figures = [figure for section in told for figure in section.figures]
    if figures:
        _make(folder / "figures")
    drawn = {}
    for figure in figures:
        found = draw(figure)
        _put_bytes(folder / f"figures/{figure.key}.svg", found.svg)
        _put_bytes(folder / f"figures/{figure.key}.png", found.png)
        drawn[figure.key] = found.svg
    return drawn


def _facts(study: Study) -> Iterator[str]:
    """Where and when, below the title."""
    meta, host = study.results.meta, study.results.host
    device = host.get("device")
    model = device.get("model") if isinstance(device, Mapping) else None
    clock = "" if study.times_count else "emulated clock: no times"
    known = [f"Linux {host.get('kernel', 'unknown')}", model, clock]
    yield ", ".join(str(text) for text in known if text)
    written = f"by pagetier {meta.get('pagetier_version', 'unknown')}"
    yield f"Measured {meta.get('created', 'at an unknown time')} {written}"


def _json_text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be made ({error.strerror}): name another place"
        ) from error


def _put(path: Path, text: str) -> None:
    _put_bytes(path, text.encode())


def _put_bytes(path: Path, content: bytes) -> None:
    replace_file(path, content)
