"""Write predictions as keywords into XMP sidecars beside images, and remove them again.

The images themselves are never changed. A sidecar is replaced atomically, one for each image: whenever a run
ends, each is as it was or has its keyword.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prolip.core import UsageError
from prolip.data.files import existing
from prolip.data.keywords import find_sidecar
from prolip.io.reading import Unreadable, read_bytes
from prolip.io.writing import write_bytes
from prolip.io.xmp import LIMIT, BadPacketError, add_keyword, remove_added

SUFFIX = ".xmp"


@dataclass(frozen=True)
class Tagging:
    """Keywords for images, by their predictions; an earlier one that was added here is replaced."""

    unsure: float = 0.0  # images below this probability get no keyword
    counts: Counter[str] = field(default_factory=Counter)  # images per keyword, counted as they come
    failed: list[tuple[str, str]] = field(default_factory=list)  # (image, reason) of sidecars that stay
    paths: dict[str, Path] = field(default_factory=dict)  # of images without a prediction yet, by name

    def remember(self, images: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield (name, path) pairs, and note the paths."""
        for name, image in images:
            if not isinstance(image, (str, os.PathLike)):
                raise UsageError(f"{name} is not a file that could have a sidecar: unpack it")
            self.paths[name] = Path(image)
            yield name, image

    def place_all(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Write the keyword of each image, then yield its prediction."""
        for row in rows:
            sure = row["class"] is not None and row["probability"] >= self.unsure
            keyword = str(row["class"]) if sure else None
            try:
                tag(self.paths.pop(row["image"]), keyword)
            except (Unreadable, BadPacketError) as error:
                self.failed.append((row["image"], f"its sidecar is left as it is: {error}"))
            else:
                self.counts[keyword or ""] += 1
            yield row


def tag(image: Path, keyword: str | None) -> None:
    """Make `keyword` the one that was added here to the sidecar of an image; None removes the earlier one."""
    sidecar = find_sidecar(image)
    _write(sidecar or image.with_name(image.name + SUFFIX), sidecar, keyword)


def untag(sources: Iterable[str | Path]) -> tuple[int, list[tuple[str, str]]]:
    """Remove the keywords that were added here, of images and of all sidecars below folders.

    Returns how many sidecars changed, and (sidecar, reason) of those that cannot be read.
    """
    changed, failed = 0, []
    for source in map(existing, sources):
        found = sorted(source.rglob(f"*{SUFFIX}")) if source.is_dir() else [find_sidecar(source)]
        for sidecar in found:
            if sidecar is None:
                continue
            try:
                changed += _write(sidecar, sidecar, None)
            except (Unreadable, BadPacketError) as error:
                failed.append((str(sidecar), str(error)))
    return changed, failed


def _write(target: Path, present: Path | None, keyword: str | None) -> bool:
    """Change a sidecar; return whether it is another one then."""
    old = None if present is None else read_bytes(present, LIMIT)
    bare = None if old is None else remove_added(old)
    new = bare if keyword is None else add_keyword(bare, keyword)
    if new == old:
        return False
    if new is None:
        target.unlink()  # written here, and nothing else is in it
    else:
        write_bytes(target, new)
    return True
