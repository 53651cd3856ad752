"""A row for each run, as CSV or Parquet."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prolip.core.errors import UsageError
from prolip.io.csv import write_csv
from prolip.io.environment import require
from prolip.io.writing import write_atomic


def write(rows: Iterable[dict[str, Any]], path: Path) -> int:
    """Write rows to a .csv or .parquet file, and return their number."""
    rows = list(rows)
    if not rows:
        raise UsageError("no run is done yet: there are no rows")
    if path.suffix == ".csv":
        write_csv(path, [list(rows[0]), *(row.values() for row in rows)])
    elif path.suffix == ".parquet":
        arrow = require("pyarrow", "tables", "Parquet")
        parquet = require("pyarrow.parquet", "tables", "Parquet")
        write_atomic(path, lambda draft: parquet.write_table(arrow.Table.from_pylist(rows), draft))
    else:
        raise UsageError(f"{path} is neither .csv nor .parquet")
    return len(rows)
