"""Weights that come inside installed packages: found, and checked before anything reads them.

To hash a hundred megabytes at every start would take longer than most answers. What was found whole is noted
in the cache folder with the file's size, times and inode, and hashed again once any of them is another.
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
    """A file inside a package, and the SHA-256 that its content must have.

    `distribution` is what pip calls the package; `package` what Python does.
    """

    distribution: str
    package: str
    inside: str
    digest: str

    def path(self) -> Path:
        """Where the file is; an error where it is missing or holds anything else."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or spec.origin is None:
            raise ModelError(f"the offline encoder needs {self.package}: pip install {self.distribution}")
        path = Path(spec.origin).parent / self.inside
        if not path.is_file():
            raise ModelError(
                f"{self.package} lacks {self.inside}: pip install --force-reinstall {self.distribution}"
            )
        found = _digest(path)
        if found != self.digest:
            raise ModelError(
                f"{path.name} of {self.package} was altered: expected SHA-256 {self.digest}, found {found}; "
                f"pip install --force-reinstall {self.distribution}"
            )
        return path


def _digest(path: Path) -> str:
    """The SHA-256 of a file; that of last time where the file is as it was then."""
    note = cache_dir() / "checked" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    seen = list(file_state(path))
    with suppress(ProlipError):
        known = read_json(note)
        if isinstance(known, dict) and known.get("state") == seen:
            return str(known.get("sha256"))
    found = sha256_file(path)
    with suppress(ProlipError):  # a cache that cannot be written is done without
        write_json(note, {"path": str(path), "state": seen, "sha256": found})
    return found
