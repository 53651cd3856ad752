"""Tables of results, and their text for a terminal, for Markdown, for LaTeX, or as CSV."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prolip.core.errors import UnknownNameError
from prolip.io.csv import csv_row


@dataclass(frozen=True)
class Cell:
    """A figure, in percent or the table's unit."""

    measured: float | None  # the mean
    std: float | None = None  # over seeds
    published: float | None = None  # the paper's figure
    comparable: bool = False  # whether the measured figure could equal it
    missing: int = 0  # missing runs
    gain: float | None = None  # the mean paired difference to another line
    interval: float | None = None  # half the width of its 95 % interval

    @property
    def difference(self) -> float | None:
        """Measured minus published, where they are comparable."""
        if self.measured is None or self.published is None or not self.comparable or self.missing:
            return None
        return self.measured - self.published

    @property
    def significant(self) -> bool:
        """Whether the interval of the gain excludes zero."""
        return self.gain is not None and self.interval is not None and abs(self.gain) > self.interval


@dataclass(frozen=True)
class ResultRow:
    """A row of a table; `group` is its dataset or model, empty for the average."""

    label: str
    cells: tuple[Cell | None, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A table for any format; `against` is the line that gains are relative to."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[ResultRow, ...]
    notes: tuple[str, ...] = ()
    unit: str = "%"
    against: str = ""


@dataclass(frozen=True)
class CellText:
    """The text of a cell."""

    text: str
    bold: bool = False


def _measured(cell: Cell | None) -> CellText:
    """Format a figure with its deviation over seeds; a star marks missing runs."""
    if cell is None or cell.measured is None:
        return CellText("-")
    text = f"{cell.measured:.2f}" + ("" if cell.std is None else f" ± {cell.std:.2f}")
    return CellText(text + ("*" if cell.missing else ""))


def _published(cell: Cell | None) -> CellText:
    return CellText("-" if cell is None or cell.published is None else f"{cell.published:.2f}")


def _difference(cell: Cell | None) -> CellText:
    """Format measured minus published, or n/c where they are not comparable."""
    if cell is None or cell.published is None or cell.measured is None:
        return CellText("-")
    return CellText("n/c" if cell.difference is None else f"{cell.difference:+.2f}")


def _gain(cell: Cell | None) -> CellText:
    """Format the gain over another line with its 95 % interval; bold where it is significant."""
    if cell is None or cell.gain is None:
        return CellText("-")
    interval = "" if cell.interval is None else f" ± {cell.interval:.2f}"
    return CellText(f"{cell.gain:+.2f}{interval}", cell.significant)


def _rows(table: Table) -> list[list[CellText]]:
    """Return rows of text: a heading for each group, a row for each line, and indented below it the gain over
    another line and the paper's figures.
    """
    rows: list[list[CellText]] = []
    group = ""
    for row in table.rows:
        if row.group != group:
            group = row.group
            rows.append([CellText(group), *[CellText("")] * len(table.columns)])
        cells = [cell for cell in row.cells if cell is not None]
        rows.append([CellText(row.label), *map(_measured, row.cells)])
        if any(cell.gain is not None for cell in cells):
            rows.append([CellText(f"  against {table.against}"), *map(_gain, row.cells)])
        if any(cell.published is not None for cell in cells):
            rows.append([CellText("  published"), *map(_published, row.cells)])
            rows.append([CellText("  difference"), *map(_difference, row.cells)])
    return rows


def rich_table(table: Table) -> Any:
    """Return the table for rich to print on a terminal."""
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=table.title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    drawn.add_column(table.unit)
    for column in table.columns:
        drawn.add_column(column, justify="right")
    for row in _rows(table):
        extra = row[0].text.startswith("  ")
        heading = not extra and not any(entry.text for entry in row[1:])
        style = "dim" if extra else "bold" if heading else None
        drawn.add_row(*(Text(e.text, "bold not dim" if e.bold else "") for e in row), style=style)
    return drawn


def markdown(table: Table) -> str:
    """Format the table in GitHub's Markdown."""

    def mark(entry: CellText, extra: bool) -> str:
        text = entry.text.strip().replace("|", "\\|")
        return f"**{text}**" if entry.bold else f"*{text}*" if extra else text

    rows = [[mark(entry, row[0].text.startswith("  ")) for entry in row] for row in _rows(table)]
    head, rule = ["", *table.columns], [":--", *["--:"] * len(table.columns)]
    body = "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))
    notes = "\n".join(f"- {note}" for note in table.notes)
    return f"**{table.title}** ({table.unit})\n\n{body}\n\n{notes}\n"


_TEX = {"%": r"\%", "&": r"\&", "#": r"\#", "_": r"\_", "^": r"\^{}", "{": r"\{", "}": r"\}", "±": r"$\pm$"}


def latex(table: Table) -> str:
    """Format the table as a tabular with booktabs rules."""

    def row_of(entries: list[CellText]) -> str:
        texts = ["".join(_TEX.get(letter, letter) for letter in entry.text) for entry in entries]
        marked = (rf"\textbf{{{t}}}" if e.bold else t for t, e in zip(texts, entries, strict=True))
        return " & ".join(marked) + r" \\"

    head = row_of([CellText(column) for column in ("", *table.columns)])
    body = "\n".join(map(row_of, _rows(table)))
    notes = "\n".join(f"% {note}" for note in table.notes)
    return (
        f"% {table.title}\n{notes}\n\\begin{{tabular}}{{l{'r' * len(table.columns)}}}\n\\toprule\n{head}\n"
        f"\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


_CSV = "group,line,column,measured,std,published,difference,comparable,missing_runs,gain,gain_95"


def as_csv(table: Table) -> str:
    """Format the table as CSV, one figure per line."""

    def rounded(*values: float | None) -> list[float | None]:
        return [None if value is None else round(value, 4) for value in values]

    rows = [f"{_CSV}\n"]
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell is not None:
                figures = rounded(cell.measured, cell.std, cell.published, cell.difference)
                comparable = "" if cell.published is None else str(cell.comparable).lower()
                names, gains = (row.group, row.label, column), rounded(cell.gain, cell.interval)
                rows.append(csv_row([*names, *figures, comparable, cell.missing, *gains]))
    return "".join(rows)


TABLE_FORMATS: dict[str, Callable[[Table], str]] = {"markdown": markdown, "latex": latex, "csv": as_csv}


def render(table: Table, style: str) -> str:
    """Format the table as "markdown", "latex" or "csv"."""
    if style not in TABLE_FORMATS:
        raise UnknownNameError("format", style, ["rich", *TABLE_FORMATS])
    return TABLE_FORMATS[style](table)
