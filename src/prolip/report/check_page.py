"""The report on a folder of labelled images: label errors, near-copies and other findings of a check."""

from typing import Any

from prolip.api.check import (
    LABEL_ERROR,
    NEAR_COPY,
    NONE_OF_THESE,
    TRAIN_AND_TEST,
    TWO_CLASSES,
    UNREADABLE,
    Check,
)
from prolip.report.html import Html, percent, table
from prolip.report.page import cards, gallery, page, section
from prolip.report.thumbnails import thumbnails

SHOWN = 200  # rows of a kind
GROUP = 8  # near-copies of one image
LISTED = 50  # files that cannot be read

SECTIONS = {  # title and note
    LABEL_ERROR: (
        "Label errors",
        "Held-out predictions and similar images contradict these labels, the most doubtful first. The label "
        "quality is the probability that both together give the label.",
    ),
    TWO_CLASSES: ("Near-copies in two classes", "The same image under two labels: one of them is wrong."),
    TRAIN_AND_TEST: ("Near-copies in train and test", "A test on training images is optimistic."),
    NEAR_COPY: ("Near-copies within a class", "All near-copies of an image count as one."),
    NONE_OF_THESE: (
        "None of these",
        "Unlike every class, including their own: the cosine to the nearest class is far below that of other "
        "images.",
    ),
}


def check_page(check: Check, *, title: str, source: str) -> str:
    """Make the HTML of a report on a check; `source` is the name of the images."""
    rows = {kind: _rows(check, kind) for kind in SECTIONS}
    small = thumbnails(check.images, (i for kind in SECTIONS for row in rows[kind] for i in row))
    images: list[dict[str, Any]] = []  # one image may be shown several times, with other lines
    sections = [_cards(check)]
    for kind, (heading, note) in SECTIONS.items():
        galleries = []
        for row in rows[kind]:
            galleries.append(gallery(list(range(len(images), len(images) + len(row)))))
            images += [_image(check, kind, i, small) for i in row]
        if count := len(check.of_kind(kind)):
            shown = f", the first {SHOWN} of" if count > SHOWN else ":"
            sections.append(section(f"{heading}{shown} {count}", *galleries, note=note))
    sections.append(_unreadable(check))
    lead = f"{len(check.images)} images of {source}, {len(check.classes)} classes."
    if check.accuracy is not None:
        lead += f" Held-out accuracy with these labels: {percent(check.accuracy)}."
    return page(title, lead, sections, {"classes": [], "images": images})


def _rows(check: Check, kind: str) -> list[list[int]]:
    """List the images of a kind in rows: all in one, or a row for the copies of an image."""
    found = [one.image for one in check.of_kind(kind)]
    if kind in (LABEL_ERROR, NONE_OF_THESE):
        return [found[:SHOWN]]
    return [group[:GROUP] for group in check.groups if set(found) & set(group)][:SHOWN]


def _image(check: Check, kind: str, i: int, small: dict[int, str]) -> dict[str, Any]:
    one = next((one for one in check.of_kind(kind) if one.image == i), None)
    lines = [[str(check.labels[i]), "bad" if kind == TWO_CLASSES else ""]]
    if one is not None and kind == LABEL_ERROR:
        lines = [[f"label: {check.labels[i]}", "bad"], [f"probably {one.suggestion}", "good"]]
    if one is not None and one.score is not None:
        score = f"cosine {one.score:.3f}"
        if kind == LABEL_ERROR:
            score = f"label quality {percent(one.score, 2)}"
        lines.append([score, ""])
    image: dict[str, Any] = {"name": "/".join(check.names[i].split("/")[-2:]), "lines": lines}
    if check.test.any():
        image["name"] = f"{'test' if check.test[i] else 'train'}/{image['name']}"
    return {**image, **({"src": small[i]} if i in small else {})}


def _cards(check: Check) -> Html:
    low, high = min(check.counts), max(check.counts)
    found = [(title.lower(), str(len(check.of_kind(kind))), "") for kind, (title, _) in SECTIONS.items()]
    found.append(("unreadable", str(len(check.of_kind(UNREADABLE))), ""))
    return cards([*found, ("training images per class", str(low) if low == high else f"{low} to {high}", "")])


def _unreadable(check: Check) -> Html:
    found = check.of_kind(UNREADABLE)
    rows: list[list[Any]] = [[check.names[one.image], one.reason] for one in found[:LISTED]]
    return section(f"Unreadable images: {len(found)}", table(["image", "reason"], rows)) if rows else Html("")
