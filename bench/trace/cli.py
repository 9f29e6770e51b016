# SPDX-License-Identifier: Apache-2.0
"""`pagetier trace import | check | info`: router traces, brought here, checked and counted.

What an import left out is said on stderr, line by line.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces import Trace, read_trace, trace_info, write_trace
from pagetier.analysis.traces.facts import DEFAULT_WINDOWS, domain_jaccard, trace_facts
from pagetier.analysis.traces.importers import (
    FORMATS,
    ImportOptions,
    import_files,
    is_canonical,
    parse_columns,
    parse_layers,
    read_physical_map,
)
from pagetier.analysis.units import parse_bytes
from pagetier.bench.engine import capture_cli
from pagetier.bench.output import Json, print_finding, print_json, print_verdict
from pagetier.bench.trace import make_cli, show

__all__ = ["trace_app"]

trace_app = typer.Typer(help="Router traces.", no_args_is_help=True, rich_markup_mode=None)
make_cli.mount(trace_app)
capture_cli.mount(trace_app)

stderr = Console(stderr=True)
stdout = Console(width=180)

_FORMAT_NAMES = ", ".join(known.name for known in FORMATS)

TracePath = Annotated[
    Path, typer.Argument(metavar="FILE", help="A trace in any format; plain, gzip or zstd.")
]
FormatName = Annotated[
    str | None, typer.Option("--format", help=f"Instead of detecting it: {_FORMAT_NAMES}.")
]
NumLayers = Annotated[
    int | None, typer.Option(min=1, help="Routed layers, where the file has bare numbers.")
]
NumExperts = Annotated[
    int | None, typer.Option(min=1, help="Experts per layer, where the file does not say.")
]
TopK = Annotated[
    int | None, typer.Option(min=1, help="Experts per position, where the file does not say.")
]
Layers = Annotated[
    str | None, typer.Option(help="The model's layers that route, such as 3-60: they become 0-57.")
]
Positions = Annotated[
    int,
    typer.Option(min=1, help="Most positions of a decode pass, 1 + drafts; wider is prefill."),
]


@trace_app.command(
    "import", epilog="Example: pagetier trace import route.txt --num-experts 896 -o mine.jsonl.gz"
)
def trace_import(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of one format.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The trace; .gz or .zst packs it.")
    ],
    format_name: FormatName = None,
    num_layers: NumLayers = None,
    num_experts: NumExperts = None,
    top_k: TopK = None,
    layers: Layers = None,
    positions: Positions = 2,
    axes: Annotated[
        str, typer.Option(help="Order of an array's axes: t position, l layer, k choice.")
    ] = "tlk",
    prompt_tokens: Annotated[
        int, typer.Option(min=0, help="Positions at the start of each request that are prefill.")
    ] = 0,
    physical_map: Annotated[
        Path | None, typer.Option(help="npy [layer, copy] of logical ids, where ids are physical.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Names in a table: step=token_idx,layer=l,experts=ids.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of the model.")] = None,
    domain: Annotated[str | None, typer.Option(help="What was asked: code, prose, ...")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Leave out broken iterations, and say which.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Turn the routes of an engine into a moe-route-trace."""
    options = ImportOptions(
        format=format_name,
        model=model,
        domain=domain,
        num_layers=num_layers,
        num_experts=num_experts,
        top_k=top_k,
        layers=None if layers is None else parse_layers(layers),
        axes=_axes(axes),
        prompt_tokens=prompt_tokens,
        positions=positions,
        physical_map=None if physical_map is None else read_physical_map(physical_map),
        columns={} if columns is None else parse_columns(columns),
        repair=repair,
    )
    found = import_files(files, options)
    _say(found.format, found.notes)
    write_trace(found.trace, output)
    document = {"format": found.format, "notes": list(found.notes), **trace_info(found.trace)}
    sentence = (
        f"{output}: {document['requests']} requests, {document['iterations']} iterations,"
        f" {document['records']} records, {document['reads']} reads"
    )
    print_verdict(document, sentence, as_json)


def _axes(text: str) -> str:
    if sorted(text.lower()) != sorted("tlk"):
        raise InputError(f"--axes {text}: expected an order of t, l and k, such as tlk or ltk")
    return text.lower()


def _say(format_name: str, notes: tuple[str, ...]) -> None:
    for line in (f"format: {format_name}", *notes):
        stderr.print(line, highlight=False, markup=False, soft_wrap=True)


def _open(file: Path, options: ImportOptions) -> Trace:
    """A trace as it is, or what an import makes of the file."""
    if options.format is None and is_canonical(file):
        return read_trace(file)
    found = import_files([file], options)
    _say(found.format, found.notes)
    return found.trace


@trace_app.command("info", epilog="Example: pagetier trace info my-trace.jsonl.gz --json")
def trace_info_command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Traces in any format; several are compared."),
    ],
    format_name: FormatName = None,
    num_layers: NumLayers = None,
    num_experts: NumExperts = None,
    top_k: TopK = None,
    layers: Layers = None,
    positions: Positions = 2,
    reuse: Annotated[str, typer.Option(help="Windows of reuse, in positions.")] = ",".join(
        map(str, DEFAULT_WINDOWS)
    ),
    expert_bytes: Annotated[
        str | None, typer.Option(help="Size of one expert, for bytes per iteration.")
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="Experts a layer in the sets whose overlap is compared.")
    ] = 16,
    as_json: Json = False,
) -> None:
    """Facts of a trace: counts, locality of its routing, traffic."""
    options = ImportOptions(
        format=format_name,
        num_layers=num_layers,
        num_experts=num_experts,
        top_k=top_k,
        layers=None if layers is None else parse_layers(layers),
        positions=positions,
    )
    windows = _windows(reuse)
    size = None if expert_bytes is None else parse_bytes(expert_bytes)
    traces = {str(file): _open(file, options) for file in files}
    documents = {
        name: {**trace_info(trace), **trace_facts(trace, reuse=windows, expert_bytes=size)}
        for name, trace in traces.items()
    }
    overlap = domain_jaccard(traces, top) if len(traces) > 1 else None
    if not as_json:
        show.documents(stdout, documents, overlap)
    elif overlap is None:
        print_json(documents[str(files[0])])
    else:
        print_json({"traces": documents, "jaccard": overlap})


def _windows(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--reuse {text}: expected whole numbers with commas, such as 1,8,64"
        ) from None


@trace_app.command("check", epilog="Example: pagetier trace check my-trace.jsonl.gz")
def trace_check(file: TracePath, as_json: Json = False) -> None:
    """Validate a trace; exit 1 names the first bad line."""
    try:
        trace = read_trace(file)
    except InputError as error:
        print_finding({"ok": False, "problem": str(error)}, str(error), as_json)
    document = {"ok": True, "problem": None}
    print_verdict(document, f"{file}: {len(trace.layer)} records, valid", as_json)
