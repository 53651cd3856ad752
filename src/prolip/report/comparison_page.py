"""A page on methods side by side: the plot, the table, and what to take."""

import math

from prolip.evaluate.comparison import CandidateScore, Comparison
from prolip.report.html import Html, table, tag
from prolip.report.page import page, section

COLUMNS = ("method", "accuracy %", "95 % interval", "gap", "calibration error %", "s", "open", "exports")
ROW, NAMES, AXIS, TOP, BOTTOM = 22, 190, 380, 8, 40  # pixels of the plot

NOTE = (
    "Each image was predicted once, by fits that had not seen it: the default as `prolip fit` reports it, "
    "the others by nested cross-validation, with their hyperparameters chosen inside each fold. Bars are "
    "95 % intervals of the accuracy on other images like these; compare two methods by their gap on these."
)
COLUMNS_NOTE = (
    "`gap` is to the default, ± its standard error; `s` seconds of one fit; `open` whether other classes can "
    "be added; `exports` what `prolip export --to` takes."
)


def comparison_page(comparison: Comparison, *, title: str, source: str) -> str:
    """The page as HTML; `source` is what the images are called."""
    each_class = f"{comparison.shots:.3g} of each"
    lead = f"{comparison.images} images of {source}, {comparison.classes} classes, {each_class}."
    rows = [
        [tag("b", cell) if each is comparison.chosen else cell for cell in table_row(each)]
        for each in comparison.scores
    ]
    left_out = [tag("li", f"{name}: {why}") for name, why in comparison.left_out.items()]
    sections = [
        section(
            f"Take {comparison.chosen.candidate}",
            tag("p", f"{_sentence(comparison.why)}."),
            method_chart(comparison),
            note=NOTE,
        ),
        section("Figures", table(list(COLUMNS), rows), note=COLUMNS_NOTE),
    ]
    if left_out:
        sections.append(section("Not fitted", tag("ul", *left_out)))
    return page(title, lead, sections)


def method_chart(comparison: Comparison) -> Html:
    """Accuracy of each method with its interval; the one to take stands out."""
    first = math.floor(10 * min(each.low for each in comparison.scores)) / 10
    last = math.ceil(10 * max(each.high for each in comparison.scores)) / 10
    base = TOP + ROW * len(comparison.scores)

    def x(share: float) -> str:
        return f"{NAMES + AXIS * (share - first) / (last - first):.1f}"

    parts = []
    for tick in range(round(10 * first), round(10 * last) + 1):
        at = x(tick / 10)
        parts.append(tag("line", x1=at, y1=TOP, x2=at, y2=base, class_="grid"))
        parts.append(tag("text", str(10 * tick), x=at, y=base + 15, text_anchor="middle"))
    for i, each in enumerate(comparison.scores):
        y, taken = TOP + ROW * i + ROW // 2, each is comparison.chosen
        told = f"{each.candidate}: {100 * each.accuracy:.1f} %, {100 * each.low:.1f} to {100 * each.high:.1f}"
        name = tag("text", each.candidate, x=NAMES - 10, y=y + 4, text_anchor="end")
        bar = tag("line", x1=x(each.low), y1=y, x2=x(each.high), y2=y, class_="whisker")
        dot = tag("circle", cx=x(each.accuracy), cy=y, r=5 if taken else 3, class_="mark")
        parts.append(tag("g", tag("title", told), name, bar, dot, class_="chosen" if taken else "other"))
    label = tag("text", "accuracy, %", x=NAMES + AXIS / 2, y=base + 34, text_anchor="middle", class_="label")
    size = f"0 0 {NAMES + AXIS + 20} {base + BOTTOM}"
    return tag(
        "svg", *parts, label, viewBox=size, role="img", aria_label="Accuracy of each method", class_="wide"
    )


def table_row(each: CandidateScore) -> list[str]:
    """A method's figures as tables show them."""
    return [
        str(each.candidate),
        f"{100 * each.accuracy:.1f}",
        f"{100 * each.low:.1f} to {100 * each.high:.1f}",
        f"{100 * each.gap:+.1f} ± {100 * each.error:.1f}",
        f"{100 * each.calibration_error:.1f}",
        f"{each.seconds:.2f}",
        "yes" if each.open_class else "no",
        ", ".join(each.exports) or "-",
    ]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
