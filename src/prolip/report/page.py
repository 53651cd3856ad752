"""A page in a single file: style, scripts, data and images inside, no request to anywhere.

The confusion matrix, the charts and the theme are in `prolip/static`, for the app, too.
"""

import json
import re
from importlib.resources import files
from typing import Any

import prolip
from prolip.report.html import Html, join, json_script, prose, tag

# The browser itself refuses whatever the page would fetch.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_LIB = files("prolip").joinpath("static")
_OWN = files("prolip.report")
_STYLES = (_LIB / "theme.css", _LIB / "document.css", _OWN / "page.css")
_MODULES = (_LIB / "dom.js", _LIB / "matrix.js", _LIB / "charts.js", _OWN / "page.js")


def page(title: str, lead: Any, sections: list[Html], data: dict[str, Any] | None = None) -> str:
    """Make a page of a title, a line or two below it, and sections; empty sections are left out.

    `data` has `classes`, and `images` for galleries and the matrix: each has a `name`, `src` (a data: URL) if
    there is a thumbnail, and either `label`, `predicted` (indices of classes) and `probability`, or `lines`
    of its own, [text, tone] each.
    """
    style = "".join(each.read_text("utf-8") for each in _STYLES)
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        Html(f"<style>{style}</style>"),
    )
    body = tag(
        "body",
        tag("header", tag("h1", title), tag("p", lead, class_="lead")),
        tag("noscript", tag("p", "The images and charts of this page need JavaScript.")),
        tag("main", *(each for each in sections if each)),
        tag("footer", tag("p", f"Made by prolip {prolip.__version__}. This file contains everything.")),
        json_script("data", data or {}),
        Html(f'<script type="module">{_script()}</script>'),
    )
    return join(Html("<!doctype html>\n"), tag("html", head, body, lang="en"), "\n")


def _script() -> str:
    """Join the modules into one: without imports and exports, as their names are distinct."""
    text = "\n".join(each.read_text("utf-8") for each in _MODULES)
    return re.sub(r"^(import\b[^;]*;\n|export )", "", text, flags=re.MULTILINE)


def section(title: str, *parts: Any, note: str | None = None) -> Html:
    """Make a section with a heading and a note on what it shows."""
    notes = [] if note is None else [tag("p", prose(note), class_="note")]
    return tag("section", tag("h2", title), *notes, *parts)


def gallery(images: list[int], empty: str = "None.") -> Html:
    """Show images, by their indices in the page's data."""
    if not images:
        return tag("p", empty)
    return tag("div", class_="gallery", data_images=",".join(map(str, images)))


def matrix() -> Html:
    """Show the confusion matrix of the page's data, and the images of the cell that is chosen."""
    return join(tag("div", id="matrix"), tag("div", id="cell", aria_live="polite"))


def chart(kind: str, data: Any) -> Html:
    """Show a chart of `static/charts.js`: learningCurve or calibrationChart."""
    return tag("div", data_chart=kind, data_values=json.dumps(data))


def cards(figures: list[tuple[str, str, str]]) -> Html:
    """Show figures at the top: name, value, comment."""
    return tag(
        "div",
        *(
            tag("div", tag("b", value), tag("span", name), tag("small", comment), class_="card")
            for name, value, comment in figures
        ),
        class_="cards",
    )
