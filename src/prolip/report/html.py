"""HTML as strings. Everything is escaped unless it is `Html` already."""

import html
import json
from typing import Any


class Html(str):
    """A string that is markup."""

    __slots__ = ()


def tag(name: str, *children: Any, **attributes: Any) -> Html:
    """Make an element; attributes, and children that are not `Html`, are escaped.

    Underscores in an attribute's name become hyphens; a trailing one is dropped, as in `class_`. None and
    False omit the attribute.

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
    """Concatenate parts; those that are not `Html` are escaped."""
    return Html("".join(part if isinstance(part, Html) else html.escape(str(part)) for part in parts))


def json_script(name: str, value: Any) -> Html:
    """Embed JSON for scripts. `<` is escaped, so that no string in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{name}">{text}</script>')


def table(header: list[Any], rows: list[list[Any]], sortable: bool = False) -> Html:
    """Make a table that scrolls sideways if it is too wide; columns after the first are numbers."""
    head = tag("tr", *(tag("th", tag("button", name) if sortable else name, scope="col") for name in header))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    made = tag("table", tag("thead", head), tag("tbody", *body), class_="sortable" if sortable else None)
    return tag("div", made, class_="scroll", tabindex="0")


def prose(text: str) -> Html:
    """Make text with `code` in backquotes."""
    return join(*(tag("code", part) if i % 2 else part for i, part in enumerate(text.split("`"))))


def percent(value: float | None, digits: int = 1) -> str:
    """Format a fraction as a percentage."""
    return "-" if value is None else f"{100 * value:.{digits}f}\u00a0%"
