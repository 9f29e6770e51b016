# SPDX-License-Identifier: Apache-2.0
"""Traces in the formats of engines and research logs, one file per format.

An importer knows a file by its first bytes and hands over its routes as columns; what all formats
have in common (prefill, layers, iterations, rules) is done once, in `assemble`.
"""

from pagetier.analysis.traces.importers.options import (
    ImportOptions,
    parse_columns,
    parse_layers,
    read_physical_map,
)
from pagetier.analysis.traces.importers.registry import (
    FORMATS,
    Imported,
    import_files,
    is_canonical,
)

__all__ = [
    "FORMATS",
    "ImportOptions",
    "Imported",
    "import_files",
    "is_canonical",
    "parse_columns",
    "parse_layers",
    "read_physical_map",
]
