# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: nothing is fetched, nothing runs, it works from a disk.

Texts come from devices, files and kernels and are escaped; the page's own policy forbids scripts
and every request besides.  Pictures stand in it as SVG whose four plain colours follow the page, so
that they read on light paper and on dark.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pagetier.analysis.report.render import shown_table
from pagetier.analysis.report.section import Figure, Section, Table
from pagetier.analysis.report.summary import Summary

__all__ = ["Page", "html_page"]

# Plain colours of the pictures, as `figures/style.py` has them, and the page's names for them.
_PLAIN = {
    "#1c1c1e": "var(--ink)",
    "#6b6b70": "var(--muted)",
    "#dcdce1": "var(--line)",
    "#fffffe": "var(--paper)",
}

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --muted: #5c5c62; --line: #dcdce1;
  --paper: #ffffff; --shade: #f5f5f7; --link: #00548a; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf0; --muted: #a9a9b2; --line: #3b3b43;
  --paper: #17171a; --shade: #222227; --link: #7cc0f2; } }
* { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 68rem;
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; border-bottom: 1px solid var(--line);
  padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p, li { max-width: 46rem; }
p { margin: .5rem 0; }
a { color: var(--link); }
.facts, figcaption, nav { color: var(--muted); font-size: .9rem; }
nav ul { list-style: none; padding: 0; margin: .5rem 0; display: flex; flex-wrap: wrap;
  gap: .2rem 1rem; }
.summary { background: var(--shade); border: 1px solid var(--line); border-radius: .4rem;
  padding: .2rem 1rem .6rem; margin: 1rem 0; }
.summary h2 { border: 0; margin: .6rem 0 0; }
.summary ul { padding-left: 1.2rem; margin: .2rem 0; }
figure { margin: 1.2rem 0; max-width: 46rem; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption strong { color: var(--ink); display: block; }
.table { overflow-x: auto; max-width: 100%; margin: .8rem 0 1.2rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; width: max-content; max-width: max(100%, 46rem); }
caption { text-align: left; font-weight: 600; padding: .2rem 0; }
th, td { text-align: left; vertical-align: top; padding: .25rem .7rem .25rem 0; min-width: 4rem;
  max-width: 26rem; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 600; }
pre { background: var(--shade); padding: .7rem; overflow-x: auto; font-size: .8rem;
  overflow-wrap: normal; }
@media print {
  :root { color-scheme: light; --ink: #000000; --muted: #444444; --line: #bbbbbb;
    --paper: #ffffff; --shade: #ffffff; --link: #000000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2, h3, caption { break-after: avoid; }
  tr { break-inside: avoid; }
  .table, pre { overflow: visible; }
  table { font-size: 7pt; width: auto; max-width: 100%; overflow-wrap: anywhere; }
  th, td { min-width: 0; padding-right: .3rem; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
}
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class Page:
    """What stands on it; `pictures` are SVG files by the keys of the sections' figures."""

    title: str
    facts: tuple[str, ...]
    summary: Summary | None
    sections: Sequence[Section]
    pictures: Mapping[str, bytes]


def html_page(page: Page) -> str:
    """The whole file."""
    return "\n".join(_lines(page)) + "\n"


def _lines(page: Page) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield f"<title>{_text(page.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>"
    yield f"<header>\n<h1>{_text(page.title)}</h1>"
    yield from (f'<p class="facts">{_text(fact)}</p>' for fact in page.facts)
    yield "</header>"
    yield from _contents(page.sections)
    yield "<main>"
    if page.summary is not None:
        yield from _summary(page.summary)
    for section in page.sections:
        yield from _section(section, page.pictures)
    yield "</main>\n</body>\n</html>"


def _text(text: str) -> str:
    """Escaped, in one line."""
    return escape(" ".join(text.split()))


def _contents(sections: Sequence[Section]) -> Iterator[str]:
    yield '<nav aria-label="Contents"><ul>'
    for section in sections:
        yield f'<li><a href="#{escape(section.key)}">{_text(section.title)}</a></li>'
    yield "</ul></nav>"


def _summary(summary: Summary) -> Iterator[str]:
    yield '<section class="summary" id="summary">\n<h2>Summary</h2>'
    yield f"<p>{_text(summary.cells)}</p>"
    yield from _list("Found", summary.found, "Nothing that repetitions bear out.")
    yield from _list("Hints: seen, but chance alone could do it", summary.hints, "")
    yield from _list("Not found, or not measured", summary.unknown, "")
    yield "</section>"


def _list(title: str, sentences: Iterable[str], empty: str) -> Iterator[str]:
    items = [f"<li>{_text(sentence)}</li>" for sentence in sentences]
    if items or empty:
        yield f"<h3>{title}</h3>"
        yield f"<ul>{''.join(items)}</ul>" if items else f"<p>{empty}</p>"


def _section(section: Section, pictures: Mapping[str, bytes]) -> Iterator[str]:
    yield f'<section id="{escape(section.key)}">\n<h2>{_text(section.title)}</h2>'
    yield from (f"<p>{_text(sentence)}</p>" for sentence in section.prose)
    for figure in section.figures:
        yield from _figure(figure, pictures[figure.key])
    for table in section.tables:
        yield from _table(table)
    yield from (f'<pre tabindex="0">{escape(block)}</pre>' for block in section.blocks)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    caption, names, rows = shown_table(table)
    label = _text(caption)
    yield f'<div class="table" role="region" tabindex="0" aria-label="{label}">'
    yield f"<table>\n<caption>{label}</caption>\n<thead><tr>"
    yield "".join(f'<th scope="col">{_text(name)}</th>' for name in names)
    yield "</tr></thead>\n<tbody>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{_text(text)}</td>' for text in row)}</tr>"
    yield "</tbody>\n</table></div>"


# ---- pictures -----------------------------------------------------------------------------------

_OPENING = re.compile(r"<svg\b[^>]*>", re.DOTALL)
_VIEW = re.compile(r'viewBox="([-0-9. ]+)"')
_DROPPED = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style\b.*?</style>", re.DOTALL)
_NAMED = re.compile(r'(\bid="|url\(#|href="#)')


def _figure(figure: Figure, svg: bytes) -> Iterator[str]:
    yield f"<figure>\n{_inline(figure, svg.decode())}"
    note = f" {_text(figure.note)}" if figure.note else ""
    yield f"<figcaption><strong>{_text(figure.title)}.</strong>{note}</figcaption>\n</figure>"


def _inline(figure: Figure, svg: str) -> str:
    """Of an SVG file its drawing, with names of its own and in the colours of the page."""
    opening = _OPENING.search(svg)
    view = None if opening is None else _VIEW.search(opening[0])
    if opening is None or view is None:
        raise ValueError(f"{figure.key}: not an SVG file with a viewBox")
    body = _DROPPED.sub("", svg[opening.end() :])
    body = _NAMED.sub(rf"\g<1>{figure.key}-", body)
    for colour, name in _PLAIN.items():
        body = body.replace(colour, name)
    label = escape(" ".join(_described(figure).split()))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f' viewBox="{view[1]}" role="img" aria-label="{label}">{body.strip()}'
    )


def _described(figure: Figure) -> str:
    names = dict.fromkeys(f"{s.name} ({s.kind})" for s in figure.series)
    axes = " and ".join(panel.y for panel in figure.panels) or figure.y
    return f"{figure.title}. {axes} by {figure.x}. Shown: {'; '.join(names)}. {figure.note}"
