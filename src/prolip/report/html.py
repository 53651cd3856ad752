"""Markup in which everything is text unless it says otherwise."""

import html
import json
from typing import Any


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, *children: Any, **attributes: Any) -> Html:
    """An element; children that are not `Html` are escaped, and so is every attribute.

    An attribute's underscores are hyphens, and one that ends in an underscore is a word of Python's. None and
    False leave it out.

    Examples
    --------
    >>> tag("td", "<cat>", tag("b", 5), class_="n", hidden=True)
    '<td class="n" hidden="">&lt;cat&gt;<b>5</b></td>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{"" if value is True else html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*parts: Any) -> Html:
    """Parts after one another; those that are not `Html` are escaped."""
    return Html("".join(part if isinstance(part, Html) else html.escape(str(part)) for part in parts))


def json_script(name: str, value: Any) -> Html:
    """Data for the page's program. `<` is written as an escape: no name in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{name}">{text}</script>')


def table(header: list[Any], rows: list[list[Any]], sortable: bool = False) -> Html:
    """A table that scrolls sideways where it is too wide; all columns but the first are numbers."""
    sort = {"class_": "sortable"} if sortable else {}
    head = tag("tr", *(tag("th", tag("button", name) if sortable else name, scope="col") for name in header))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    drawn = tag("table", tag("thead", head), tag("tbody", *body), **sort)
    return tag("div", drawn, class_="scroll", tabindex="0")


def prose(text: str) -> Html:
    """Text in which what stands between backquotes is code."""
    parts = text.split("`")
    return join(*(tag("code", part) if i % 2 else part for i, part in enumerate(parts)))


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction for people."""
    return "-" if value is None else f"{100 * value:.{digits}f}\u00a0%"
