"""Find weights inside installed packages, and check them before they are read."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from prolip.core.errors import ModelError
from prolip.encoders.pretrained import file_sha256


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
        path = Path(spec.origin if spec and spec.origin else "").parent / self.inside
        if not path.is_file() or file_sha256(path) != self.digest:
            raise ModelError(
                f"{self.inside} of the package {self.package} is missing, or its SHA-256 is not "
                f"{self.digest}: pip install --force-reinstall {self.distribution}"
            )
        return path
