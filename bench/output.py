# SPDX-License-Identifier: Apache-2.0
"""What commands say: one document or a sentence on stdout, and the exit status of a finding."""

import json
from typing import Annotated, Any

import typer

__all__ = ["FINDING", "Json", "print_finding", "print_json", "print_verdict"]

FINDING = 1

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def print_json(document: Any) -> None:
    """The one document of ``--json``."""
    print(json.dumps(document, indent=2, allow_nan=False))


def print_verdict(document: dict[str, Any], sentence: str, as_json: bool) -> None:
    """The result of a check in the form that was asked for."""
    if as_json:
        print_json(document)
    else:
        print(sentence)


def print_finding(document: dict[str, Any], sentence: str, as_json: bool) -> None:
    """The same, and the command ends with the status of a finding."""
    print_verdict(document, sentence, as_json)
    raise typer.Exit(FINDING)
