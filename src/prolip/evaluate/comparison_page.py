"""A comparison as a page: the plot, a table, and what to take; one HTML file that needs nothing else."""

from __future__ import annotations

import html
import math
from pathlib import Path

from prolip.core import UsageError
from prolip.evaluate.comparison import Comparison, Judged

ROW, LEFT, WIDTH, TOP = 26, 210, 430, 10  # pixels of the plot: a row, names, the axis, above the first row


def page_format(path: Path) -> str:
    """The format that a file's suffix names: html, or svg for the plot alone."""
    suffix = path.suffix.lower().lstrip(".")
    if suffix not in ("html", "svg"):
        raise UsageError(f"{path}: a comparison is written as .html, or its plot as .svg")
    return suffix


def draw_plot(comparison: Comparison) -> str:
    """Accuracy of each method with its interval, as SVG; the one to take is filled."""
    judged = comparison.judged
    first = math.floor(10 * min(each.low for each in judged)) / 10
    last = math.ceil(10 * max(each.high for each in judged)) / 10

    def x(share: float) -> float:
        return round(LEFT + WIDTH * (share - first) / (last - first), 1)

    bottom = TOP + ROW * len(judged)
    parts = [
        f'<line class="grid" x1="{x(t / 10)}" y1="{TOP}" x2="{x(t / 10)}" y2="{bottom}"/>'
        f'<text x="{x(t / 10)}" y="{bottom + 18}" text-anchor="middle">{10 * t}</text>'
        for t in range(round(10 * first), round(10 * last) + 1)
    ]
    for i, each in enumerate(judged):
        y, taken = TOP + ROW * i + ROW / 2, each is comparison.chosen
        parts.append(
            f'<g class="{"taken" if taken else "other"}"><title>{html.escape(_told(each))}</title>'
            f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{html.escape(str(each.candidate))}</text>'
            f'<line x1="{x(each.low)}" y1="{y}" x2="{x(each.high)}" y2="{y}"/>'
            f'<circle cx="{x(each.accuracy)}" cy="{y}" r="5"/></g>'
        )
    label = f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 38}" text-anchor="middle">accuracy, %</text>'
    size = f'viewBox="0 0 {LEFT + WIDTH + 30} {bottom + 46}" width="{LEFT + WIDTH + 30}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'aria-label="accuracy of each method with its interval"><style>{_SVG}</style>'
        f"{''.join(parts)}{label}</svg>"
    )


def draw_page(comparison: Comparison, source: str) -> str:
    """The page; `source` names the images."""
    rows = "".join(
        f"<tr{' class=taken' if each is comparison.chosen else ''}>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in table_row(each))
        + "</tr>"
        for each in comparison.judged
    )
    head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
    left_out = "".join(
        f"<li>{html.escape(name)}: {html.escape(why)}</li>" for name, why in comparison.left_out.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Methods on {html.escape(source)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{_PAGE}</style></head><body>
<h1>Methods on {html.escape(source)}</h1>
<p><strong>Take {html.escape(str(comparison.chosen.candidate))}</strong>:
{html.escape(comparison.why)}.</p>
<p>{comparison.images} images of {comparison.classes} classes ({comparison.shots:.3g} a class), each asked
about once, by fits that had not seen it. Bars are 95 % intervals of the accuracy on other images like these;
two methods are better compared by the gap to the default on the same images (± its standard error).</p>
{draw_plot(comparison)}
<div class="wide"><table><tr>{head}</tr>{rows}</table></div>
{f"<p>Not fitted:</p><ul>{left_out}</ul>" if left_out else ""}
</body></html>
"""


COLUMNS = ("method", "accuracy %", "95 % interval", "gap", "calibration error %", "s", "open", "exports")


def table_row(each: Judged) -> list[str]:
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


def _told(each: Judged) -> str:
    return f"{each.candidate}: {100 * each.accuracy:.1f} %, {100 * each.low:.1f} to {100 * each.high:.1f} %"


_SVG = (
    "text{font:13px system-ui,sans-serif;fill:#333}.grid{stroke:#e4e4e4}"
    ".other line{stroke:#8a9bb0;stroke-width:2}.other circle{fill:#fff;stroke:#5b7390;stroke-width:2}"
    ".taken line{stroke:#1f5fa8;stroke-width:3}.taken circle{fill:#1f5fa8}.taken text{font-weight:700}"
)
_PAGE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #222; background: #fff }
body { max-width: 62rem; margin: 2.5rem auto; padding: 0 1rem }
svg { max-width: 100%; height: auto } .wide { overflow-x: auto }
table { border-collapse: collapse; margin: 1.5rem 0; font-size: .9rem }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left }
.taken td { font-weight: 700; background: #eef4fb }
"""
