"""Parquet files and datasets of Hugging Face: tables of Arrow, whose images are read on access."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from prolip.core.errors import UsageError
from prolip.data.tables import Table
from prolip.io.environment import require
from prolip.io.reading import reading

ROWS = 100  # of a dataset that are read at a time
Part = Callable[[list[str]], Any]  # of columns: some rows, as a table of Arrow


def load_saved_dataset(folder: Path) -> Any:
    """Open a saved dataset."""
    datasets = require("datasets", "datasets", f"reading {folder}, a dataset of Hugging Face,")
    with reading(folder):
        return datasets.load_from_disk(str(folder))


def dataset_table(source: Any, place: str, folder: Path = Path(), split: str | None = None) -> Table:
    """Return the table of a Dataset in memory or on the disk, which may be a split of a larger one."""
    if not hasattr(source, "__len__"):
        raise UsageError(f"{place} is streamed, and has no length: collect it into a Dataset first")

    def part(start: int, columns: list[str]) -> Any:
        return source.select_columns(columns).with_format("arrow")[start : start + ROWS]

    parts = [partial(part, start) for start in range(0, len(source), ROWS)]
    return _table(source.features.arrow_schema, parts, place, folder, split)


def parquet_table(path: Path) -> Table:
    """Open a Parquet file."""
    parquet = require("pyarrow.parquet", "tables", f"reading {path.name}")
    with reading(path):
        file = parquet.ParquetFile(path)
        parts = [partial(file.read_row_group, group) for group in range(file.num_row_groups)]
        return _table(file.schema_arrow, parts, str(path), path.parent)


def arrow_table(source: Any) -> Table:
    """Return the table that a `pyarrow.Table` in memory is."""
    return _table(source.schema, [source.select], "Table", Path())


def _table(schema: Any, parts: Sequence[Part], place: str, folder: Path, split: str | None = None) -> Table:
    features = _features(schema)

    def read(columns: dict[str, str]) -> Iterator[tuple[int, dict[str, Any]]]:
        kind, number = str(schema.field(columns["image"]).type), 0
        embedded = kind.startswith("struct") or "binary" in kind
        small = list({*columns.values()} - ({columns["image"]} if embedded else set()))
        load = _cell_reader(parts, columns["image"])
        for index, part in enumerate(parts):
            with reading(place):
                rows = part(small or [columns["image"]]).to_pylist()
            for row, values in enumerate(rows):
                cells = {kind: _named(values.get(name), features.get(name)) for kind, name in columns.items()}
                if embedded:
                    cells["image"] = partial(load, index, row)
                yield number, cells
                number += 1

    types = {
        kind: name
        for kind, type_name in (("image", "Image"), ("label", "ClassLabel"))
        for name, feature in reversed(features.items())
        if isinstance(feature, dict) and feature.get("_type") == type_name
    }
    return Table(place, schema.names, read, folder, types, split)


def _cell_reader(parts: Sequence[Part], column: str) -> Callable[[int, int], Any]:
    """Return a function that reads a cell; the part that was read last stays in memory."""
    lock = Lock()

    @lru_cache(maxsize=1)
    def load(part: int) -> Any:
        return parts[part]([column]).column(0)

    def read(part: int, row: int) -> Any:
        with lock:
            return load(part)[row].as_py()

    return read


def _features(schema: Any) -> dict[str, Any]:
    """Return the types that Hugging Face's `datasets` writes beside those of Arrow, by column."""
    try:
        return {**json.loads(schema.metadata[b"huggingface"])["info"]["features"]}
    except (TypeError, KeyError, ValueError):  # another library wrote it
        return {}


def _named(value: Any, feature: Any) -> Any:
    """Return a numeric label by its name."""
    if not isinstance(feature, dict) or "names" not in feature:
        return value
    return dict(enumerate(feature["names"])).get(value)
