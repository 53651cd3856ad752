"""A page on what to mend in a folder of labelled images."""

import itertools
from typing import Any

import numpy as np

from prolip.api.check import COPY, LEAK, NO_CLASS, SMALL, TWO_CLASSES, UNREADABLE, WRONG_LABEL, Check, Finding
from prolip.report.html import Html, percent, table, tag
from prolip.report.page import cards, gallery, page, section
from prolip.report.thumbnails import thumbnails

SHOWN = 200  # rows of a kind
GROUP = 8  # copies of one picture
LISTED = 50  # of what has no picture

NOTES = {
    WRONG_LABEL: "By the answers of fits that did not see the image, and by its neighbours; the most "
    "doubtful first.",
    TWO_CLASSES: "The same picture under two labels: one of them is wrong.",
    LEAK: "A test on pictures that were learned from looks too good.",
    COPY: "The same picture more than once in a class: it says nothing new.",
    NO_CLASS: "Unlike every class, its own too.",
}
TITLES = {
    WRONG_LABEL: "Likely wrong labels",
    TWO_CLASSES: "In two classes",
    LEAK: "In train and test",
    COPY: "Copies within a class",
    NO_CLASS: "Pictures of no class",
}


def check_page(check: Check, *, title: str, source: str) -> str:
    """The page as HTML; `source` is what the images are called."""
    numbers = dict.fromkeys(i for kind in TITLES for row in _rows(check, kind) for i, _ in row)
    pictures = thumbnails(check.images, list(numbers))
    images: list[dict[str, Any]] = []
    sections = [_cards(check)]
    for kind in TITLES:
        rows, start = _rows(check, kind), len(images)
        images += [_entry(check, i, pictures, lines) for row in rows for i, lines in row]
        sections.append(_findings(check, kind, [len(row) for row in rows], start))
    sections.append(_unreadable(check))
    sections.append(_classes(check))
    lead = f"{len(check.images)} images of {source}, {len(check.classes)} classes."
    if check.accuracy is not None:
        lead += f" Held-out accuracy with the labels as they are: {percent(check.accuracy)}."
    return page(title, lead, sections, {"classes": [], "images": images})


def _entry(check: Check, i: int, pictures: dict[int, str], lines: list[list[str]]) -> dict[str, Any]:
    where = "test/" if check.test[i] else ""
    name = "/".join(check.names[i].split("/")[-2:])
    return {"name": where + name, "lines": lines, **({"src": pictures[i]} if i in pictures else {})}


def _rows(check: Check, kind: str) -> list[list[tuple[int, list[list[str]]]]]:
    """Rows of pictures of a kind, each with its lines: a finding, or all copies of one picture."""
    found, labels = check.of_kind(kind), check.labels
    if kind in (WRONG_LABEL, NO_CLASS):
        return [[(one.image, _lines(one, str(labels[one.image])))] for one in found[:SHOWN]]
    concerned = {one.image for one in found}
    groups = [group for group in check.groups if concerned & set(group)]
    tone = "bad" if kind == TWO_CLASSES else ""
    return [[(i, [[str(labels[i]), tone]]) for i in group[:GROUP]] for group in groups[:SHOWN]]


def _lines(one: Finding, label: str) -> list[list[str]]:
    if one.kind == NO_CLASS:
        return [[f"labelled {label}", ""]]
    return [[f"labelled {label}", "bad"], [f"probably {one.suggestion}", "good"]]


def _cards(check: Check) -> Html:
    small, large = min(check.counts), max(check.counts)
    found = [(TITLES[kind].lower(), str(len(check.of_kind(kind))), "") for kind in TITLES]
    found.append(("unreadable", str(len(check.of_kind(UNREADABLE))), ""))
    span = f"{small} to {large}" if small != large else str(small)
    found.append(("images of a class", span, "to learn from"))
    return cards(found)


def _findings(check: Check, kind: str, sizes: list[int], start: int) -> Html:
    """The pictures of a kind, from `start` on in the page's data, in rows of these sizes."""
    found = check.of_kind(kind)
    if not found:
        return Html("")
    ends = np.cumsum([start, *sizes]).tolist()
    if kind in (WRONG_LABEL, NO_CLASS):
        drawn = gallery(list(range(start, ends[-1])))
    else:
        rows = (",".join(map(str, range(a, b))) for a, b in itertools.pairwise(ends))
        drawn = tag("div", *(tag("div", class_="pair", data_images=row) for row in rows))
    more = tag("p", "There are more, in the table.", class_="note") if len(sizes) == SHOWN else ""
    return section(f"{TITLES[kind]}: {len(found)}", drawn, more, note=NOTES[kind])


def _unreadable(check: Check) -> Html:
    found = check.of_kind(UNREADABLE)
    if not found:
        return Html("")
    rows = [[check.names[one.image], one.suggestion] for one in found[:LISTED]]
    return section(f"Unreadable: {len(found)}", table(["image", "why"], rows))


def _classes(check: Check) -> Html:
    parts: list[Html] = []
    if check.small:
        rows = [[str(name), n] for name, n in check.small]
        note = f"Fewer than {SMALL} images: little can be learned, and next to nothing be tested."
        parts += [tag("h3", "Too small"), tag("p", note, class_="note"), table(["class", "images"], rows)]
    if check.alike:
        rows = [[f"{a} and {b}", percent(share, 0)] for a, b, share in check.alike]
        note = "Held-out images of one are often taken for the other: more images of both, or one class."
        parts += [tag("h3", "Too alike"), tag("p", note, class_="note"), table(["classes", "mixed up"], rows)]
    return section("Classes", *parts) if parts else Html("")
