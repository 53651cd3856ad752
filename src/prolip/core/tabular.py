"""Values that show themselves as a table."""

import html
import importlib
from abc import ABC, abstractmethod
from typing import Any

from prolip.core.errors import UsageError


class Tabular(ABC):
    """A value with rows: a notebook shows them as a table, and `to_frame` makes a data frame of them."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table, with the same keys in each."""

    def to_frame(self) -> Any:
        """Return a data frame of pandas, which must be installed."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise UsageError("a data frame needs pandas: pip install pandas") from error
        return pandas.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        rows = self.rows()
        cells = [list(rows[0]) if rows else [], *(list(row.values()) for row in rows)]
        kinds = ["th", *["td"] * len(rows)]
        lines = [
            "".join(f"<{kind}>{html.escape(_shown(value))}</{kind}>" for value in line)
            for kind, line in zip(kinds, cells, strict=True)
        ]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<p>{html.escape(repr(self))}</p><table>{body}</table>"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None else str(value)
