"""A table as text: for a terminal, for Markdown, for LaTeX, or as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

from prolip.bench.cells import Cell, Line, Table
from prolip.core.errors import unknown_name

NOT_COMPARABLE = "n/c"


def render(table: Table, style: str) -> str:
    """The table in "markdown", "latex" or "csv"."""
    styles: dict[str, Callable[[Table], str]] = {"markdown": markdown, "latex": latex, "csv": as_csv}
    if style not in styles:
        raise unknown_name("format", style, ["rich", *styles])
    return styles[style](table)


def measured(cell: Cell | None, deviation: str = " ± ") -> str:
    """A figure with its deviation over seeds; a star where runs are missing."""
    if cell is None or cell.measured is None:
        return "-"
    text = f"{cell.measured:.2f}" + ("" if cell.std is None else f"{deviation}{cell.std:.2f}")
    return text + ("*" if cell.missing else "")


def paper(cell: Cell | None) -> str:
    """The published figure."""
    return "-" if cell is None or cell.published is None else f"{cell.published:.2f}"


def difference(cell: Cell | None) -> str:
    """Measured less published, or that it means nothing."""
    if cell is None or cell.published is None or cell.measured is None:
        return "-"
    return NOT_COMPARABLE if cell.difference is None else f"{cell.difference:+.2f}"


def has_paper(line: Line) -> bool:
    """Whether the paper has any figure for the line."""
    return any(cell is not None and cell.published is not None for cell in line.cells)


def grid(table: Table, deviation: str = " ± ") -> list[list[str]]:
    """Rows of text: the group's name where it changes, then three rows for a line that the paper has too."""
    rows: list[list[str]] = []
    group = ""
    for line in table.lines:
        if line.group != group:
            group = line.group
            rows.append([group, *[""] * len(table.columns)])
        rows.append([line.label, *(measured(cell, deviation) for cell in line.cells)])
        if has_paper(line):
            rows.append(["  published", *map(paper, line.cells)])
            rows.append(["  difference", *map(difference, line.cells)])
    return rows


def rich_table(table: Table) -> Any:
    """For a terminal."""
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=table.title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    drawn.add_column(table.unit)
    for column in table.columns:
        drawn.add_column(column, justify="right")
    for row in grid(table):
        extra = row[0].startswith("  ")
        heading = not extra and not any(row[1:])
        drawn.add_row(*map(Text, row), style="dim" if extra else "bold" if heading else None)
    return drawn


def markdown(table: Table) -> str:
    """GitHub's Markdown."""
    head = ["", *table.columns]
    rule = [":--", *["--:"] * len(table.columns)]
    rows = [[f"*{cell.strip()}*" if row[0].startswith("  ") else cell for cell in row] for row in grid(table)]
    body = "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, rule, *rows)
    )
    notes = "\n".join(f"- {note}" for note in table.notes)
    return f"**{table.title}** ({table.unit})\n\n{body}\n\n{notes}\n"


def latex(table: Table) -> str:
    """A tabular with booktabs rules."""
    rows = [" & ".join(_tex(cell) for cell in row) + r" \\" for row in grid(table, deviation=r" $\pm$ ")]
    head = " & ".join(map(_tex, ("", *table.columns))) + r" \\"
    notes = "\n".join(f"% {note}" for note in table.notes)
    body = "\n".join(rows)
    return (
        f"% {table.title}\n{notes}\n\\begin{{tabular}}{{l{'r' * len(table.columns)}}}\n\\toprule\n{head}\n"
        f"\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


def as_csv(table: Table) -> str:
    """One figure a line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "group",
            "line",
            "column",
            "measured",
            "std",
            "published",
            "difference",
            "comparable",
            "missing_runs",
        ]
    )
    for line in table.lines:
        for column, cell in zip(table.columns, line.cells, strict=True):
            if cell is not None:
                numbers = (cell.measured, cell.std, cell.published, cell.difference)
                texts = ["" if number is None else f"{number:.4f}" for number in numbers]
                comparable = "" if cell.published is None else str(cell.comparable).lower()
                writer.writerow([line.group, line.label, column, *texts, comparable, cell.missing])
    return out.getvalue()


_TEX = {"%": r"\%", "&": r"\&", "#": r"\#", "_": r"\_", "^": r"\^{}", "{": r"\{", "}": r"\}"}


def _tex(text: str) -> str:
    if r"$\pm$" in text:
        return text
    return "".join(_TEX.get(letter, letter) for letter in text)
