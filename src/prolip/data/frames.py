"""Data frames of pandas and polars, and tables of pyarrow, in memory."""

from collections.abc import Iterator
from typing import Any

from prolip.core.errors import InputError
from prolip.data.libraries import comes_from
from prolip.data.tables import Record


def is_frame(source: Any) -> bool:
    """Whether this is a table of one of the three."""
    return any(comes_from(source, library) for library in ("pandas", "polars", "pyarrow")) and (
        hasattr(source, "collect") or hasattr(source, "columns")
    )


def frame_records(source: Any) -> Iterator[Record]:
    """The records of a frame, by row from 0."""
    if hasattr(source, "collect"):  # a query of polars
        source = source.collect()
    names = list(getattr(source, "column_names", source.columns))
    lowered = [str(name).strip().lower() for name in names]
    if len(set(lowered)) < len(lowered):
        raise InputError(f"two columns of the frame have the same name: {', '.join(lowered)[:200]}")
    columns = {low: _values(source[name]) for low, name in zip(lowered, names, strict=True)}
    for row, cells in enumerate(zip(*columns.values(), strict=True)):
        record = dict(zip(columns, cells, strict=True))
        yield Record(f"the frame, row {row}", f"row {row}", record)


def _values(column: Any) -> list[Any]:
    convert = next(
        getattr(column, name) for name in ("to_list", "to_pylist", "tolist") if hasattr(column, name)
    )
    return list(convert())
