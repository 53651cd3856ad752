"""Embeddings of images in a file: the path of each image, and its unit row."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.io.environment import require
from prolip.io.writing import write_atomic

FORMATS = (".npz", ".parquet")


def write_embeddings(path: Path, names: Sequence[str], rows: Array) -> None:
    """Write names [n] and rows [n, D]: arrays `paths`, `embeddings`, or columns `path`, `embedding`."""
    if path.suffix.lower() == ".npz":
        write_atomic(path, lambda draft: _write_npz(draft, names, rows))
    elif path.suffix.lower() == ".parquet":
        arrow = require("pyarrow", "pyarrow", "Parquet", "tables")
        parquet = require("pyarrow.parquet", "pyarrow", "Parquet", "tables")
        flat = arrow.array(rows.astype(np.float32).ravel())
        column = arrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
        table = arrow.table({"path": list(names), "embedding": column})
        write_atomic(path, lambda draft: parquet.write_table(table, draft))
    else:
        raise UsageError(f"embeddings go to {' or '.join(FORMATS)}, not to {path.name}")


def _write_npz(draft: Path, names: Sequence[str], rows: Array) -> None:
    with draft.open("wb") as file:  # given a name, NumPy would add a suffix
        np.savez(file, paths=np.array(names), embeddings=rows.astype(np.float32))
