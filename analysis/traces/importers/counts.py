# SPDX-License-Identifier: Apache-2.0
"""Tables of counts, known so that they can be refused for what they are.

A count says how often, never when: no cache can be replayed from it.  Tables serve where a table is
asked for, as the experts that an arena holds.
"""

import re

from pagetier.analysis.traces.importers.source import Source

__all__ = ["detects_counts"]

# .coli_usage: <layer> <expert> <count>, with negative layers for what is known of the model; its
# older binary form; CSV with a count; JSON with activations by expert.
_TRIPLE = re.compile(rb"-?\d+\s+\d+\s+\d+\s*")
_BINARY = b"IKU1"
_CSV = re.compile(rb"(?:\w+,)*(?:count|activations|hits|frequency)(?:,\w+)*\s*")
_JSON = re.compile(rb'"(?:activations|counts|expert_counts|count)"\s*:')


def detects_counts(source: Source) -> bool:
    """Whether the file is a table of counts."""
    line = source.first_line
    return (
        source.head.startswith(_BINARY)
        or _TRIPLE.fullmatch(line) is not None
        or _CSV.fullmatch(line) is not None
        or (line[:1] in (b"{", b"[") and _JSON.search(source.head) is not None)
    )
