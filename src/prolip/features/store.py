"""Features on disk: every image is encoded once.

A space is everything but the image that determines a feature: the tower's weights, the preprocessing, the
width. A key is the SHA-256 of the image's content: moving a file does not change its features.

A file with the same path and state (size, times, inode) as before has the same content, and is not opened
again. One that changed a moment ago is not recorded, as it may change again within a tick of a coarse clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence

from prolip.core.arguments import as_path
from prolip.core.arrays import Array
from prolip.core.errors import InputError, UsageError
from prolip.encoders.base import Encoder
from prolip.io.row_store import RowStore

_VERSION = 5  # increases with any change to what a row means: decoding, views
_SETTLED = 2.0  # seconds after which a change has a time of its own, on any file system


class FeatureStore:
    """A folder with a file of features; safe to use from any thread.

    By default it is `features` in the cache folder; where that cannot be used, features are not stored, and
    `problem` says why. A given folder must be usable; with `renew`, a damaged file in it is replaced.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, renew: bool = False) -> None:
        path = None if root is None else as_path(root, "store")
        if path is not None and path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file: name a folder for the features")
        self.rows = RowStore(path and path / "features.sqlite", renew)
        self.root = self.rows.path.parent

    @property
    def problem(self) -> str | None:
        """Why features are not stored, if they are not."""
        return self.rows.problem

    def space(self, encoder: Encoder) -> Space:
        """Open the features of this encoder."""
        described = [_VERSION, encoder.fingerprint, encoder.preprocess.config(), encoder.width]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
        return Space(self.rows, digest[:20], encoder.width)

    def known(self, files: Sequence[tuple[str, Sequence[int]]]) -> list[bytes | None]:
        """Return the SHA-256 of files whose path and state (`file_state`) are recorded."""
        names = [_file(path, state) for path, state in files]
        keys = self.rows.get_files(names)
        return [keys.get(name) for name in names]

    def remember(self, files: Sequence[tuple[str, Sequence[int], bytes]]) -> None:
        """Record the path, state and hash of files, except those that changed a moment ago."""
        limit = time.time_ns() - int(_SETTLED * 1e9)
        self.rows.add_files(
            [(_file(path, state), key) for path, state, key in files if max(state[1:3]) < limit]
        )


class Space:
    """The stored features of one encoder, by content and view."""

    def __init__(self, rows: RowStore, name: str, width: int) -> None:
        self.name, self.width = name, width
        self._rows = rows

    def __len__(self) -> int:
        return self._rows.count(self.name)

    def get(self, keys: Sequence[bytes]) -> dict[tuple[bytes, int], Array]:
        """Return the rows [width] of images, by key and view."""
        return self._rows.get(self.name, keys)

    def add(self, keys: Sequence[bytes], views: Sequence[int], features: Array) -> None:
        """Write rows [R, width], all or none."""
        if features.shape != (len(keys), self.width) or len(views) != len(keys):
            raise InputError(f"expected [{len(keys)}, {self.width}] features, got {list(features.shape)}")
        self._rows.add(self.name, list(zip(keys, map(int, views), features, strict=True)))


def _file(path: str, state: Sequence[int]) -> bytes:
    """Return sixteen bytes that identify a file and its state."""
    name = os.fsencode(os.path.abspath(path))  # noqa: PTH100 - a thousand times as fast as Path.resolve
    return hashlib.blake2b(name + b"\0" + repr(tuple(state)).encode(), digest_size=16).digest()
