"""Features on disk: every image is encoded once.

A space is everything but the image that determines a feature: the tower's weights, the preprocessing, the
width. It is a folder with a manifest that describes it and any number of shards, safetensors files with

    features [R, width] float32     keys [R, 32] uint8     views [R] int32     checks [R] int64

where a key is the SHA-256 of the image's content: moving a file does not change its features. Shards are
written atomically, under unique names, and never changed, so that any number of processes can read and write
one space, also on a network file system. A check is the CRC-32 of a row with its key and view: a damaged row
is noticed when it is read, and encoded again.

Large images are shrunk while they are decoded, unless exact decoding is requested, which changes their view 0
slightly. A small image is the same either way, and its row has view 0; for a large one each way of decoding
has a view number of its own (`DECODE_VIEW_IDS`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from prolip.core.arguments import as_path
from prolip.core.errors import InputError, ProlipError
from prolip.encoders.base import Encoder
from prolip.encoders.precomputed import require_images
from prolip.features.contents import Contents
from prolip.io.files import cache_dir
from prolip.io.reading import Unreadable, open_regular, safetensors_header
from prolip.io.writing import write_json, write_tensors

_FORMAT = "prolip-features"
_VERSION = 2  # increases with any change to what a row means: decoding, views, layout
_SMALL = 512  # rows; shards below this are merged once there are many
_MANY = 64
# View 0 of large images, decoded exactly and shrunk; far from the numbers of training views.
DECODE_VIEW_IDS = {True: 2**31 - 1, False: 2**31 - 2}


class FeatureStore:
    """A folder of spaces, one per encoder and preprocessing.

    By default it is `features` in the cache folder; where that cannot be written, features are not stored,
    and `Space.take_problems` says so. A given folder must be writable.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = cache_dir() / "features" if root is None else as_path(root, "store")
        self.contents = Contents(self.root / "contents.sqlite")
        self._spaces: dict[str, Space] = {}
        self.required = root is not None

    def space(self, encoder: Encoder, exact: bool | None = False) -> Space:
        """Open the features of this encoder, of images decoded exactly or quickly; None reads either.

        A space that is open is refreshed with what other processes have added since.
        """
        require_images(encoder, "a store of features")
        identity = {
            "format": _FORMAT,
            "version": _VERSION,
            "fingerprint": encoder.fingerprint,
            "preprocess": encoder.preprocess.config(),
            "width": encoder.width,
        }
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        key = f"{digest}-{exact}"
        if key in self._spaces:
            self._spaces[key].refresh()
        else:
            place, manifest = self.root / digest[:20], {"model": encoder.name, **identity}
            self._spaces[key] = Space(place, digest, encoder.width, manifest, self.required, exact)
        return self._spaces[key]


class Space:
    """The stored rows of one encoder, by content and view."""

    def __init__(
        self,
        path: Path,
        digest: str,
        width: int,
        manifest: dict[str, Any],
        required: bool = True,
        exact: bool | None = False,
    ) -> None:
        self.path = path
        self.width = width
        self.exact = exact
        self._required = required
        self._unwritable: ProlipError | None = None
        self._unusable: list[str] = []
        self._damaged: list[Path] = []  # the shard of each damaged row; loader threads append
        self._digest = digest
        self._manifest = {**manifest, "space": digest}
        self._shards: list[_Shard] = []
        self._index = _Index.of([])
        self._lock = Lock()
        self.refresh()

    def __len__(self) -> int:
        return len(self._index.prefixes)

    def refresh(self) -> None:
        """Read what other processes have added or changed since the last refresh."""
        with self._lock:
            files = {file: _state(file) for file in sorted(self.path.glob("*.safetensors"))}
            unchanged = [shard for shard in self._shards if files.get(shard.path) == shard.state]
            known = {shard.path for shard in unchanged}
            added = [shard for file in files if file not in known and (shard := self._open(file))]
            if added or len(unchanged) < len(self._shards):
                self._shards = [*unchanged, *added]
                self._index = _Index.of(self._shards)

    def take_problems(self) -> list[str]:
        """Return, and forget, what was found damaged: a line for each shard."""
        unusable, self._unusable = self._unusable, []
        damaged, self._damaged = self._damaged, []
        unwritable = [f"features are not stored: {self._unwritable}"] if self._unwritable else []
        rows = [f"{path}: damaged rows ({n}) are encoded again" for path, n in Counter(damaged).items()]
        return unwritable + unusable + rows

    def get(self, key: bytes, view: int) -> np.ndarray | None:
        """Return the row [width] of an image and view, or None; safe to call from any thread."""
        numbers = [view]
        if view == 0:
            numbers += DECODE_VIEW_IDS.values() if self.exact is None else [DECODE_VIEW_IDS[self.exact]]
        return next((row for number in numbers if (row := self._stored(key, number)) is not None), None)

    def _stored(self, key: bytes, view: int) -> np.ndarray | None:
        for shard, row in self._index.candidates(key, view):
            if shard.views[row] == view and shard.keys[row].tobytes() == key:
                try:
                    values = shard.read(row)
                except FileNotFoundError:  # merged by another process
                    self.refresh()
                    return self._stored(key, view)
                if values is not None:
                    return values
                self._damaged.append(shard.path)
        return None

    def add(self, keys: Sequence[bytes], views: Sequence[int], features: np.ndarray) -> None:
        """Write rows [R, width] as one shard, atomically; for view 0 see `DECODE_VIEW_IDS`."""
        with self._lock:
            try:
                if self._unwritable is None:
                    self._write(keys, views, features)
            except ProlipError as error:
                if self._required:
                    raise
                self._unwritable = error
            if self._unwritable is not None:
                return
            small = [shard for shard in self._shards if len(shard) < _SMALL]
            if len(small) > _MANY:
                with suppress(ProlipError):  # the disk is full; the rows themselves are written
                    self._merge(small)
            self._index = _Index.of(self._shards)

    def _write(self, keys: Sequence[bytes], views: Sequence[int], features: np.ndarray) -> None:
        features = np.ascontiguousarray(features, dtype=np.float32)
        if features.shape != (len(keys), self.width) or len(views) != len(keys):
            raise InputError(f"expected [{len(keys)}, {self.width}] features, got {list(features.shape)}")
        checks = [_check(key, view, row) for key, view, row in zip(keys, views, features, strict=True)]
        tensors = {
            "features": features,
            "keys": np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 32),
            "views": np.asarray(views, np.int32),
            "checks": np.asarray(checks, np.int64),
        }
        path = self.path / f"{time.time_ns():x}-{secrets.token_hex(4)}.safetensors"
        metadata = {"format": _FORMAT, "version": str(_VERSION), "space": self._digest}
        try:
            if not (self.path / "manifest.json").exists():
                write_json(self.path / "manifest.json", self._manifest)
            write_tensors(path, tensors, metadata)
        except ProlipError as error:
            raise ProlipError(
                f"{error} (the feature store: set PROLIP_CACHE to a folder on another disk)"
            ) from error
        self._shards = [*self._shards, _Shard.open(path, self._digest, self.width)]

    def _merge(self, small: list[_Shard]) -> None:
        """Merge small shards. One that Windows cannot remove, as it is being read, is merged again later."""
        rows = []
        for shard in small:
            with suppress(FileNotFoundError):  # merged by another process
                for row in range(len(shard)):
                    if (values := shard.read(row)) is not None:
                        rows.append((shard.keys[row].tobytes(), int(shard.views[row]), values))
        if rows:
            keys, views, features = zip(*rows, strict=True)
            self._write(keys, views, np.stack(features))
        merged = {shard.path for shard in small}
        self._shards = [shard for shard in self._shards if shard.path not in merged]
        for path in merged:
            with suppress(OSError):
                path.unlink()

    def _open(self, file: Path) -> _Shard | None:
        try:
            return _Shard.open(file, self._digest, self.width)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            cause = error.__cause__ if isinstance(error, Unreadable) else error
            if isinstance(cause, FileNotFoundError):  # merged by another process since the folder was listed
                return None
            if isinstance(cause, OSError):  # its content may be good: too many files are open, say
                self._unusable.append(f"{file} cannot be opened ({cause}); its images are encoded again")
                return None
            self._unusable.append(f"{file} is damaged ({error}); its images are encoded again")
            with suppress(OSError):
                file.replace(file.with_suffix(".damaged"))
            return None


@dataclass(frozen=True, eq=False)
class _Shard:
    """One file: keys, views and checks in memory, features read row by row.

    It is opened for each read: a file that is open or mapped cannot be removed on Windows.
    """

    path: Path
    keys: np.ndarray
    views: np.ndarray
    checks: np.ndarray
    start: int  # of the features, in bytes
    width: int
    state: tuple[int, int] | None

    @classmethod
    def open(cls, path: Path, digest: str, width: int) -> _Shard:
        open_regular(path).close()  # a pipe would hang
        state = _state(path)
        with safe_open(path, framework="np") as handle:
            if (handle.metadata() or {}).get("space") != digest:
                raise ValueError("it belongs to another space")
            if set(handle.keys()) != {"features", "keys", "views", "checks"}:
                raise ValueError("it holds other tensors")
            features = handle.get_slice("features")
            shape, dtype = features.get_shape(), features.get_dtype()
            keys, views, checks = (handle.get_tensor(name) for name in ("keys", "views", "checks"))
        rows = len(views)
        if (shape, keys.shape, checks.shape) != ([rows, width], (rows, 32), (rows,)) or dtype != "F32":
            raise ValueError("its tensors have the wrong shapes")
        if (keys.dtype, views.dtype, checks.dtype) != (np.uint8, np.int32, np.int64) or (views < 0).any():
            raise ValueError("its tensors have the wrong types")
        with path.open("rb") as file:
            header, start = safetensors_header(file)
        start += header["features"]["data_offsets"][0]
        return cls(path, keys, views, checks, start, width, state)

    def __len__(self) -> int:
        return len(self.views)

    def read(self, row: int) -> np.ndarray | None:
        """Return a row, or None if it is damaged; raise FileNotFoundError if the file is gone."""
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self.start + row * self.width * 4)
                values = np.frombuffer(file.read(self.width * 4), np.float32)
        except FileNotFoundError:
            raise
        except (OSError, ValueError):  # too many files are open; the file was cut short
            return None
        intact = _check(self.keys[row].tobytes(), int(self.views[row]), values) == self.checks[row]
        return values if intact else None


@dataclass(frozen=True, eq=False)
class _Index:
    """The places of rows: sorted 64-bit prefixes, each with its shard and row.

    A million rows sort in a tenth of a second and take 16 MB. Rows with equal prefixes are distinguished by
    their full keys.
    """

    prefixes: np.ndarray  # [R] uint64, sorted
    owners: np.ndarray  # [R] int32, indices in `shards`
    rows: np.ndarray  # [R] int32
    shards: list[_Shard]

    @classmethod
    def of(cls, shards: list[_Shard]) -> _Index:
        empty = [np.zeros(0, np.uint64)]
        prefixes = np.concatenate([_prefixes(shard.keys, shard.views) for shard in shards] or empty)
        lengths = [len(shard) for shard in shards]
        owners = np.repeat(np.arange(len(shards), dtype=np.int32), lengths)
        rows = np.concatenate([np.arange(n, dtype=np.int32) for n in lengths] or [np.zeros(0, np.int32)])
        order = np.argsort(prefixes, kind="stable")
        return cls(prefixes[order], owners[order], rows[order], shards)

    def candidates(self, key: bytes, view: int) -> list[tuple[_Shard, int]]:
        """Return shards and rows with this prefix, the newest first: it may replace a damaged one."""
        prefix = _prefixes(np.frombuffer(key, np.uint8)[None], np.array([view]))
        start = int(np.searchsorted(self.prefixes, prefix, side="left")[0])
        stop = int(np.searchsorted(self.prefixes, prefix, side="right")[0])
        return [(self.shards[self.owners[i]], int(self.rows[i])) for i in reversed(range(start, stop))]


def _prefixes(keys: np.ndarray, views: np.ndarray) -> np.ndarray:
    """Return prefixes [R] uint64 of keys [R, 32] and views [R]; the factor spreads an image's views."""
    head = np.ascontiguousarray(keys[:, :8]).view("<u8")[:, 0]
    return head ^ (views.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def _check(key: bytes, view: int, row: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(row).data, zlib.crc32(key + view.to_bytes(4, "little")))


def _state(path: Path) -> tuple[int, int] | None:
    """Return size and time of change; None if the file is gone."""
    with suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None
