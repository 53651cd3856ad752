"""One file that is a whole page: style, program, data and pictures inside, and no request to anywhere."""

from importlib.resources import files
from typing import Any

import prolip
from prolip.report.html import Html, join, json_script, prose, tag

# The browser itself refuses whatever the page would fetch.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(title: str, lead: Any, sections: list[Html], data: dict[str, Any] | None = None) -> str:
    """The page: its title, `lead` in a line or two under it, and sections, of which empty ones are left out.

    `data` is what the program shows: `classes`, and `images`, each with `name`, perhaps `src` (a data
    address), `truth` and `answer` (numbers of classes), `probability`, or `lines` of its own ([text, tone]
    each).
    """
    style, program = (files("prolip.report").joinpath(name).read_text("utf-8") for name in _FILES)
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
        tag("noscript", tag("p", "The pictures and the matrix of this page are shown by JavaScript.")),
        tag("main", *(each for each in sections if each)),
        tag("footer", tag("p", f"Made by prolip {prolip.__version__}. This file is all there is of it.")),
        json_script("data", data or {}),
        Html(f"<script>{program}</script>"),
    )
    return join(Html("<!doctype html>\n"), tag("html", head, body, lang="en"), "\n")


def section(title: str, *parts: Any, note: str | None = None) -> Html:
    """A part of the page under its own heading, with a line on what it shows."""
    told = [] if note is None else [tag("p", prose(note), class_="note")]
    return tag("section", tag("h2", title), *told, *parts)


def gallery(images: list[int], empty: str = "None.") -> Html:
    """Pictures by their numbers in the page's data."""
    if not images:
        return tag("p", empty)
    return tag("div", class_="gallery", data_images=",".join(map(str, images)))


def cards(figures: list[tuple[str, str, str]]) -> Html:
    """Figures to see first: (what, value, more)."""
    return tag(
        "div",
        *(
            tag("div", tag("b", value), tag("span", what), tag("small", more), class_="card")
            for what, value, more in figures
        ),
        class_="cards",
    )


_FILES = ("page.css", "page.js")
