"""A table as text: for a terminal, for Markdown, for LaTeX, or as CSV."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prolip.core.errors import UnknownNameError
from prolip.io.csv import csv_row
from prolip.research.reporting.table import Cell, Table

NOT_COMPARABLE = "n/c"


@dataclass(frozen=True)
class Entry:
    """The text of a cell."""

    text: str
    bold: bool = False


def render(table: Table, style: str) -> str:
    """The table in "markdown", "latex" or "csv"."""
    styles: dict[str, Callable[[Table], str]] = {"markdown": markdown, "latex": latex, "csv": as_csv}
    if style not in styles:
        raise UnknownNameError("format", style, ["rich", *styles])
    return styles[style](table)


def measured(cell: Cell | None) -> str:
    """A figure with its deviation over seeds; a star where runs are missing."""
    if cell is None or cell.measured is None:
        return "-"
    text = f"{cell.measured:.2f}" + ("" if cell.std is None else f" ± {cell.std:.2f}")
    return text + ("*" if cell.missing else "")


def paper(cell: Cell | None) -> str:
    """The published figure."""
    return "-" if cell is None or cell.published is None else f"{cell.published:.2f}"


def difference(cell: Cell | None) -> str:
    """Measured less published, or that it means nothing."""
    if cell is None or cell.published is None or cell.measured is None:
        return "-"
    return NOT_COMPARABLE if cell.difference is None else f"{cell.difference:+.2f}"


def gain(cell: Cell | None) -> Entry:
    """What a figure gains over another line's, with its 95 % interval; bold where that is more than noise."""
    if cell is None or cell.gain is None:
        return Entry("-")
    return Entry(
        f"{cell.gain:+.2f}" + ("" if cell.interval is None else f" ± {cell.interval:.2f}"), cell.clear
    )


def grid(table: Table) -> list[list[Entry]]:
    """Rows of text: the group's name where it changes, a row for each line, and below it, set in, the gain
    over another line, and the paper's figures where it has any.
    """
    rows: list[list[Entry]] = []
    group = ""
    for row in table.rows:
        if row.group != group:
            group = row.group
            rows.append([Entry(group), *[Entry("")] * len(table.columns)])
        rows.append([Entry(row.label), *(Entry(measured(cell)) for cell in row.cells)])
        if any(cell is not None and cell.gain is not None for cell in row.cells):
            rows.append([Entry(f"  against {table.against}"), *map(gain, row.cells)])
        if any(cell is not None and cell.published is not None for cell in row.cells):
            rows.append([Entry("  published"), *(Entry(paper(cell)) for cell in row.cells)])
            rows.append([Entry("  difference"), *(Entry(difference(cell)) for cell in row.cells)])
    return rows


def rich_table(table: Table) -> Any:
    """The table as rich draws it on a terminal."""
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=table.title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    drawn.add_column(table.unit)
    for column in table.columns:
        drawn.add_column(column, justify="right")
    for row in grid(table):
        extra = row[0].text.startswith("  ")
        heading = not extra and not any(entry.text for entry in row[1:])
        style = "dim" if extra else "bold" if heading else None
        drawn.add_row(*(Text(e.text, "bold not dim" if e.bold else "") for e in row), style=style)
    return drawn


def markdown(table: Table) -> str:
    """GitHub's Markdown."""

    def mark(entry: Entry, extra: bool) -> str:
        text = entry.text.strip().replace("|", "\\|")
        return f"**{text}**" if entry.bold else f"*{text}*" if extra else text

    rows = [[mark(entry, row[0].text.startswith("  ")) for entry in row] for row in grid(table)]
    head, rule = ["", *table.columns], [":--", *["--:"] * len(table.columns)]
    body = "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))
    notes = "\n".join(f"- {note}" for note in table.notes)
    return f"**{table.title}** ({table.unit})\n\n{body}\n\n{notes}\n"


def latex(table: Table) -> str:
    """A tabular with booktabs rules."""
    rows = [" & ".join(_tex(entry) for entry in row) + r" \\" for row in grid(table)]
    head = " & ".join(_tex(Entry(column)) for column in ("", *table.columns)) + r" \\"
    notes = "\n".join(f"% {note}" for note in table.notes)
    body = "\n".join(rows)
    return (
        f"% {table.title}\n{notes}\n\\begin{{tabular}}{{l{'r' * len(table.columns)}}}\n\\toprule\n{head}\n"
        f"\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


_CSV = "group,line,column,measured,std,published,difference,comparable,missing_runs,gain,gain_95"


def as_csv(table: Table) -> str:
    """One figure a line."""
    rows = [f"{_CSV}\n"]
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell is not None:
                figures = (cell.measured, cell.std, cell.published, cell.difference)
                comparable = "" if cell.published is None else str(cell.comparable).lower()
                gains = map(_number, (cell.gain, cell.interval))
                names = (row.group, row.label, column)
                rows.append(csv_row([*names, *map(_number, figures), comparable, cell.missing, *gains]))
    return "".join(rows)


def _number(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


_TEX = {"%": r"\%", "&": r"\&", "#": r"\#", "_": r"\_", "^": r"\^{}", "{": r"\{", "}": r"\}", "±": r"$\pm$"}


def _tex(entry: Entry) -> str:
    text = "".join(_TEX.get(letter, letter) for letter in entry.text)
    return rf"\textbf{{{text}}}" if entry.bold else text
