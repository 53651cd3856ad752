"""Project stored features into the adapted space, without opening an image.

    z = normalize(head(x) A)

One product per row. Rows are read, multiplied and written a block at a time, so that memory does not grow
with the number of rows; while a block is multiplied, the next is read and the last written. The result is one
array of unit rows, as .npy or .safetensors (tensor `embeddings`), which faiss, usearch and LanceDB read; the
paths are in a file beside it, a JSON string on each line: a path may contain anything, also newlines.
"""

import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from prolip.core import Head, InputError, UsageError
from prolip.core.arrays import Array, row_lengths
from prolip.encoders.base import Encoder
from prolip.features.embed import open_store
from prolip.io.files import readable
from prolip.io.progress import Progress
from prolip.io.reading import open_regular, read_array
from prolip.io.writing import Writer, bytes_writer, check_place, write_files

BLOCK = 8192  # rows at a time
DTYPES = {"float32": np.float32, "float16": np.float16}

Blocks = Iterator[Array]


def reproject(
    source: Path,
    head: Head,
    out: Path,
    *,
    adapter: Array | None = None,
    encoder: Encoder | None = None,
    dtype: str = "float32",
    progress: Progress | None = None,
) -> int:
    """Write adapted embeddings of stored features to an .npy or .safetensors file; return how many.

    `source` is a folder that `prolip embed` wrote (then `encoder` is its base model, and paths go into
    `<out>.paths.jsonl`), or an .npy of features [n, width]; `adapter` is RLA's matrix after the head; `dtype`
    is "float32" or "float16".
    """
    if out.suffix not in (".npy", ".safetensors"):
        raise UsageError(f"the output must be .npy or .safetensors, not {out.name}")
    if check_place(out).is_dir():
        raise UsageError(f"{out} is a folder: name a file")
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be float32 or float16, got {dtype!r}")
    if source.is_dir():
        if encoder is None:
            raise UsageError("a store of features needs the encoder that they came from")
        paths, blocks = _store_blocks(source, encoder)
        rows = len(paths)
    else:
        paths, (rows, blocks) = None, _array_blocks(source, head.width)
    matrix = None if adapter is None else np.asarray(adapter, np.float32)

    def project(block: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            v = head(block.astype(np.float32, copy=False))
            if matrix is not None:
                v = v @ matrix
            length = row_lengths(v)
        if not np.isfinite(length).all():  # one such value makes the whole row NaN or infinite
            raise InputError(f"{source} holds NaN or infinite values")
        v /= np.maximum(length, 1e-12)
        return v.astype(DTYPES[dtype], copy=False)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(_header(out.suffix, rows, head.dim, dtype))
            _project_blocks(blocks, project, file, rows, progress)

    write_files((out, write), (out.with_name(f"{out.name}.paths.jsonl"), _path_writer(paths)))
    return rows


def _path_writer(paths: list[str] | None) -> Writer | None:
    if paths is None:
        return None
    lines = "".join(f"{json.dumps(path, ensure_ascii=False)}\n" for path in paths)
    return bytes_writer(lines.encode("utf-8", "backslashreplace"))  # the escapes are JSON's too


def _project_blocks(
    blocks: Blocks, project: Callable[[Array], Array], file: BinaryIO, rows: int, progress: Progress | None
) -> None:
    """Read ahead and write behind on two threads, multiply on this one."""
    done = 0
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        upcoming = reader.submit(next, blocks, None)
        written: Future[Any] | None = None
        while (block := upcoming.result()) is not None:
            upcoming = reader.submit(next, blocks, None)
            result = project(block)
            if written is not None:
                written.result()
            written = writer.submit(file.write, np.ascontiguousarray(result).data)
            done += len(block)
            if progress is not None:
                progress(done, rows)
        if written is not None:
            written.result()
    if done != rows:
        raise InputError(f"expected {rows} rows, found {done}")


def _array_blocks(path: Path, width: int) -> tuple[int, Blocks]:
    """Return the number of rows and the blocks of an .npy, not mapped: mapped pages count as memory."""
    if path.suffix != ".npy" or not path.is_file():
        raise InputError(f"{path} is neither a folder of `prolip embed` nor an .npy of features")
    array: Any = read_array(path, mapped=True)
    if array.ndim != 2 or array.shape[1] != width or array.dtype.kind != "f" or not array.flags.c_contiguous:
        raise InputError(
            f"{path} must hold floats [n, {width}], row by row, got {array.dtype} {list(array.shape)}"
        )
    rows, dtype, offset = array.shape[0], array.dtype, array.offset
    del array

    def blocks() -> Blocks:
        with open_regular(path) as file:
            file.seek(offset)
            for start in range(0, rows, BLOCK):
                size = min(BLOCK, rows - start) * width * dtype.itemsize
                if len(found := file.read(size)) < size:
                    raise InputError(f"{path} was truncated while it was read")
                yield np.frombuffer(found, dtype).reshape(-1, width)

    return rows, blocks()


def _store_blocks(root: Path, encoder: Encoder) -> tuple[list[str], Blocks]:
    """Return the paths and blocks of a store; every row is checked."""
    space, entries = open_store(root, encoder)

    def blocks() -> Blocks:
        for start in range(0, len(entries), BLOCK):
            rows = []
            for path, key in entries[start : start + BLOCK]:
                row = space.get(key, 0)
                if row is None:
                    raise InputError(
                        f"{root} lists {readable(path)} but its features are missing or damaged: "
                        "run `prolip embed` again"
                    )
                rows.append(row)
            yield np.stack(rows)

    return [path for path, _ in entries], blocks()


def _header(suffix: str, rows: int, dim: int, dtype: str) -> bytes:
    if suffix == ".npy":
        stream = io.BytesIO()
        described = {"descr": np.dtype(DTYPES[dtype]).str, "fortran_order": False, "shape": (rows, dim)}
        np.lib.format.write_array_header_2_0(stream, described)
        return stream.getvalue()
    size = rows * dim * np.dtype(DTYPES[dtype]).itemsize
    kind = {"float32": "F32", "float16": "F16"}[dtype]
    entry = {"embeddings": {"dtype": kind, "shape": [rows, dim], "data_offsets": [0, size]}}
    text = json.dumps(entry).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
