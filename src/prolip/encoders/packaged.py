"""Find weights inside installed packages, and check them before they are read.

Hashing a hundred megabytes at every start would take longer than most predictions. The hash of a file is
cached with its size, times and inode, and computed again when any of them changes.
"""

import hashlib
import importlib.util
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prolip.core.errors import ModelError, ProlipError
from prolip.io.files import cache_dir, file_state, sha256_file
from prolip.io.reading import read_json
from prolip.io.writing import write_json


@dataclass(frozen=True)
class PackagedFile:
    """A file inside a package, and the SHA-256 of its content.

    `distribution` is the name of the package for pip, `package` its name for Python.
    """

    distribution: str
    package: str
    inside: str
    digest: str

    def path(self) -> Path:
        """Return the path of the file, after checking its content."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or spec.origin is None:
            raise ModelError(f"the offline encoder needs {self.package}: pip install {self.distribution}")
        path = Path(spec.origin).parent / self.inside
        if not path.is_file():
            raise ModelError(
                f"{self.package} lacks {self.inside}: pip install --force-reinstall {self.distribution}"
            )
        actual = _digest(path)
        if actual != self.digest:
            raise ModelError(
                f"{path.name} of {self.package} was altered: expected SHA-256 {self.digest}, found {actual}; "
                f"pip install --force-reinstall {self.distribution}"
            )
        return path


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, from the cache if the file has not changed."""
    note = cache_dir() / "checked" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    seen = list(file_state(path))
    with suppress(ProlipError):
        known = read_json(note)
        if isinstance(known, dict) and known.get("state") == seen:
            return str(known.get("sha256"))
    actual = sha256_file(path)
    with suppress(ProlipError):  # a cache that cannot be written is not used
        write_json(note, {"path": str(path), "state": seen, "sha256": actual})
    return actual
