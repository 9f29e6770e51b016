# SPDX-License-Identifier: Apache-2.0
"""Router traces: read what people have, type it exactly, write one canonical form.

`read_trace` raises InputError with the file and the line for anything that is not a trace.
"""

from pagetier.analysis.traces.columns import Trace, TraceHeader, widths
from pagetier.analysis.traces.info import trace_info
from pagetier.analysis.traces.read import read_trace
from pagetier.analysis.traces.write import encode_trace, write_trace

__all__ = [
    "Trace",
    "TraceHeader",
    "encode_trace",
    "read_trace",
    "trace_info",
    "widths",
    "write_trace",
]
