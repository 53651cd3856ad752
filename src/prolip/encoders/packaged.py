"""Weights that come inside installed packages: found, and checked before anything reads them."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from prolip.core.errors import ModelError
from prolip.core.files import sha256_file


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
        found = sha256_file(path)
        if found != self.digest:
            raise ModelError(
                f"{path.name} of {self.package} was altered: expected SHA-256 {self.digest}, found {found}; "
                f"pip install --force-reinstall {self.distribution}"
            )
        return path
