"""Tables of results, and their text for a terminal, for Markdown, for LaTeX, or as CSV."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prolip.core.errors import UnknownNameError
from prolip.io.csv import csv_row

LOWER_IS_BETTER = ("ECE", "rank")
NOT_RANKED = ("better on", "p", "here", "there", "largest", "runs")


@dataclass(frozen=True)
class Cell:
    """A figure, in percent or the table's unit."""

    measured: float | None  # the mean
    std: float | None = None  # over seeds
    published: float | None = None
    why: tuple[str, ...] = ()  # why the published figure does not compare with the measured one
    published_std: float | None = None
    missing: int = 0  # missing runs
    gain: float | None = None  # the mean paired difference to another line
    interval: float | None = None  # half the width of its 95 % interval
    gain_missing: int = 0  # missing runs of either line

    @property
    def difference(self) -> float | None:
        """Measured minus published, where they are comparable."""
        if self.measured is None or self.published is None or self.why or self.missing:
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

    @property
    def compared(self) -> bool:
        """Whether a published figure of the row is comparable."""
        return any(cell.published is not None and not cell.why for cell in self.cells if cell is not None)

    @property
    def apart(self) -> bool:
        """Whether the row has published figures, and none is comparable."""
        return not self.compared and any(
            cell.published is not None for cell in self.cells if cell is not None
        )


@dataclass(frozen=True)
class Table:
    """A table for any format; `against` is the line that gains are relative to."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[ResultRow, ...]
    notes: tuple[str, ...] = ()
    unit: str = "%"
    against: str = ""
    digits: tuple[int, ...] = ()  # decimals of each column, where they are not 2

    @property
    def reasons(self) -> dict[str, str]:
        """Why published figures are not compared: a letter for each reason."""
        found = dict.fromkeys(why for row in self.rows for cell in row.cells if cell for why in cell.why)
        return {why: _letters(number) for number, why in enumerate(found)}

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, those on published figures included."""
        return (*self.notes, *(f"[{mark}] not compared: {why}" for why, mark in self.reasons.items()))


def _letters(number: int) -> str:
    first, second = divmod(number, 26)
    return (chr(96 + first) if first else "") + chr(97 + second)


@dataclass(frozen=True)
class TextRow:
    """A row as text: its kind ("group", "line", "extra" or "apart"), label, texts, and how they stand out."""

    kind: str
    label: str
    texts: Sequence[str] = ()
    styles: Sequence[str] = ()  # "best", "second" or ""


def text_rows(table: Table, with_published: bool = True) -> Iterator[TextRow]:
    """Yield rows of text: for each group a heading, its lines, and then the figures that are not compared.

    Below a line are the gain over another line, and the published figures with their differences.
    """
    reasons = table.reasons
    for group in dict.fromkeys(row.group for row in table.rows):
        mine = [row for row in table.rows if row.group == group]
        if group:
            yield TextRow("group", group, [""] * len(table.columns))
        for row, styles in zip(mine, _styles(table, mine), strict=True):
            yield TextRow("line", row.label, _format(table, _measured, row), styles)
            if any(cell.gain is not None for cell in row.cells if cell) and table.against:
                strong = ["best" if cell and cell.significant else "" for cell in row.cells]
                yield TextRow("extra", f"against {table.against}", _format(table, _gain, row), strong)
            if with_published and row.compared:
                yield TextRow("extra", "published", _format(table, _published, row))
                yield TextRow("extra", "difference", _format(table, _difference, row))
        for row in mine if with_published else ():
            if row.apart:
                marks = sorted({reasons[why] for cell in row.cells if cell for why in cell.why})
                label = f"{row.label}, published [{', '.join(marks)}]"
                yield TextRow("apart", label, _format(table, _published, row))


def _styles(table: Table, rows: Sequence[ResultRow]) -> list[list[str]]:
    """Return for each row which figures are the best and second best of their columns, of finished ones."""
    found = [[""] * len(table.columns) for _ in rows]
    for place, column in enumerate(table.columns):
        cells = [row.cells[place] for row in rows]
        values = [
            None if x is None or x.measured is None or x.missing else round(x.measured, 2) for x in cells
        ]
        known = {value for value in values if value is not None}
        if len(rows) > 1 and column not in NOT_RANKED and table.unit == "%":
            ordered = sorted(known, reverse=column not in LOWER_IS_BETTER)
            styles = dict(zip(ordered, ("best", "second"), strict=False))
            for styled, value in zip(found, values, strict=True):
                styled[place] = styles.get(value, "") if value is not None else ""
    return found


def _format(table: Table, figure: Callable[[Cell, int], str], row: ResultRow) -> list[str]:
    digits = table.digits or (2,) * len(table.columns)
    return ["-" if cell is None else figure(cell, n) for cell, n in zip(row.cells, digits, strict=True)]


def _number(value: float | None, deviation: float | None, digits: int, sign: str = "") -> str:
    around = "" if deviation is None else f" ± {deviation:.{digits}f}"
    return "-" if value is None else f"{value:{sign}.{digits}f}{around}"


def _measured(cell: Cell, digits: int) -> str:
    """Format a figure with its deviation over seeds; a star marks missing runs."""
    if cell.measured is None:
        return _gain(cell, digits)
    return _number(cell.measured, cell.std, digits) + "*" * (cell.missing > 0)


def _published(cell: Cell, digits: int) -> str:
    return _number(cell.published, cell.published_std, digits)


def _difference(cell: Cell, digits: int) -> str:
    return _number(cell.difference, None, digits, "+")


def _gain(cell: Cell, digits: int) -> str:
    """Format the gain over another line with its 95 % interval; a star marks missing runs."""
    star = "*" * (cell.gain_missing > 0 and cell.gain is not None)
    return _number(cell.gain, cell.interval, digits, "+") + star


def rich_tables(table: Table, width: int, with_published: bool = True) -> list[Any]:
    """Return the table for rich to print, as several with some of the columns each if it is too wide."""
    rows = list(text_rows(table, with_published))
    first = max((len(row.label) + 2 * (row.kind == "extra") for row in rows), default=0)
    widths = [
        max([len(column), *(len(row.texts[place]) for row in rows)]) + 2
        for place, column in enumerate(table.columns)
    ]
    first = min(first, max(16, width - max(widths, default=0)))  # long labels are folded
    parts: list[list[int]] = [[]]
    for place, wide in enumerate(widths):
        if parts[-1] and first + sum(widths[other] for other in parts[-1]) + wide > width:
            parts.append([])
        parts[-1].append(place)
    return [_rich_table(table, rows, part) for part in parts]


def _rich_table(table: Table, rows: Sequence[TextRow], part: Sequence[int]) -> Any:
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, header_style="bold")
    drawn.add_column(table.unit)
    for place in part:
        drawn.add_column(table.columns[place], justify="right", no_wrap=True)
    looks = {"group": "bold", "extra": "dim", "apart": "dim", "line": None}
    emphasis = {"best": "bold not dim", "second": "underline"}
    for row in rows:
        styles = row.styles or [""] * len(table.columns)
        cells = [Text(row.texts[place], emphasis.get(styles[place], "")) for place in part]
        drawn.add_row(Text("  " * (row.kind == "extra") + row.label), *cells, style=looks[row.kind])
    return drawn


def markdown(table: Table, with_published: bool = True) -> str:
    """Format the table in GitHub's Markdown."""

    def cells(row: TextRow) -> list[str]:
        styles = row.styles or [""] * len(row.texts)
        texts = [text.replace("|", "\\|") for text in (row.label, *row.texts)]
        marks = ["**" if style == "best" else "*" * (row.kind != "line") for style in ("", *styles)]
        return [f"{mark}{text}{mark}" if text else "" for text, mark in zip(texts, marks, strict=True)]

    head, rule = ["", *table.columns], [":--", *["--:"] * len(table.columns)]
    rows = (head, rule, *map(cells, text_rows(table, with_published)))
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "\n".join(f"- {note}" for note in (table.all_notes if with_published else table.notes))
    return f"**{table.title}** ({table.unit})\n\n{body}\n\n{notes}\n"


_TEX = {c: rf"\{c}" for c in "%&#_{}$"} | {
    "^": r"\^{}",
    "±": r"$\pm$",
    "~": r"\~{}",
    "\\": r"\textbackslash{}",
}
_TEX |= {"<": "$<$", ">": "$>$"}
_TEX_STYLES = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}


def latex(table: Table, with_published: bool = True) -> str:
    r"""Format the table with booktabs rules: the best of a column in bold, the second best underlined.

    It needs \usepackage{booktabs}. Published figures stand below their line, without differences.
    """

    def tex(text: str) -> str:
        quoted = re.sub(r'"([^"]*)"', r"``\1''", text)
        return "".join(_TEX.get(letter, letter) for letter in quoted)

    width = len(table.columns) + 1
    lines: list[str] = []
    last = ""
    for row in text_rows(table, with_published):
        styles = row.styles or [""] * len(row.texts)
        texts = [_TEX_STYLES[style] % tex(text) for text, style in zip(row.texts, styles, strict=True)]
        if row.kind == "group":
            lines += [r"\midrule"] * bool(lines) + [
                rf"\multicolumn{{{width}}}{{l}}{{\textit{{{tex(row.label)}}}}} \\"
            ]
        elif row.label != "difference":
            if row.kind == "apart" and last != "apart":
                lines.append(r"\midrule")
            label = rf"\quad {tex(row.label)}" if row.kind == "extra" else tex(row.label)
            lines.append(" & ".join([label, *texts]) + r" \\")
        last = row.kind
    head = " & ".join(["", *map(tex, table.columns)]) + r" \\"
    notes = "".join(f"% {note}\n" for note in (table.all_notes if with_published else table.notes))
    unit = r"\%" if table.unit == "%" else table.unit
    return (
        f"{notes}\\begin{{table}}\n\\centering\n\\caption{{{tex(table.title)}, {unit}.}}\n"
        f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}\n\\toprule\n{head}\n\\midrule\n"
        + "\n".join(lines)
        + "\n\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


_CSV = "group,line,column,measured,std,published,difference,not_compared,missing_runs,gain,gain_95"


def as_csv(table: Table, with_published: bool = True) -> str:
    """Format the table as CSV, one figure per line."""

    def rounded(*values: float | None) -> list[float | None]:
        return [None if value is None else round(value, 4) for value in values]

    rows = [f"{_CSV}\n"]
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell is not None:
                names, published = (row.group, row.label, column), cell.published if with_published else None
                figures = rounded(
                    cell.measured, cell.std, published, cell.difference if with_published else None
                )
                gains = rounded(cell.gain, cell.interval)
                why = "; ".join(cell.why) if with_published else ""
                rows.append(csv_row([*names, *figures, why, cell.missing, *gains]))
    return "".join(rows)


TABLE_FORMATS: dict[str, Callable[[Table, bool], str]] = {"markdown": markdown, "latex": latex, "csv": as_csv}


def render(table: Table, style: str, with_published: bool = True) -> str:
    """Format the table as "markdown", "latex" or "csv"."""
    if style not in TABLE_FORMATS:
        raise UnknownNameError("format", style, ["rich", *TABLE_FORMATS])
    return TABLE_FORMATS[style](table, with_published)
