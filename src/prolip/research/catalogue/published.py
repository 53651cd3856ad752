"""The paper's own figures, to stand beside measured ones.

`published.json` holds every number of the paper's tables, main text and supplement, and where the paper
contradicts itself: such figures are listed with every value that it gives.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prolip.core.errors import check_name


@dataclass(frozen=True)
class Published:
    """One table of the paper."""

    columns: tuple[str, ...]  # shots, datasets or measures
    # By (dataset, method); the dataset is None where a row is a mean over the eleven.
    values: dict[tuple[str | None, str], tuple[float | None, ...]]

    def value(self, method: str, column: str, dataset: str | None = None) -> float | None:
        """A figure, or None where the paper has none."""
        row = self.values.get((dataset, method))
        return row[self.columns.index(column)] if row is not None and column in self.columns else None


@cache
def published(name: str) -> Published:
    """The published figures of a table, by its name in the paper."""
    tables = _tables()
    check_name("published table", name, tables)
    rows = tables[name]["rows"]
    values = {(row.get("dataset"), row["method"]): tuple(row["values"]) for row in rows}
    return Published(tuple(tables[name]["columns"]), values)


@cache
def _tables() -> dict[str, Any]:
    text = Path(__file__).with_name("published.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)["tables"]
    return tables
