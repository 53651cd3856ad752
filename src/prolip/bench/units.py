"""A unit of work: one method, once, under one protocol. Small, independent, repeatable to the bit."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import prolip

# What of the package decides a result, once features are given.
_SOURCES = (
    "core",
    "solvers",
    "methods",
    "evaluate",
    "data/sampling.py",
    "bench/execute.py",
    "bench/manifold.py",
)
_LIBRARIES = ("numpy", "torch", "scipy", "scikit-learn", "umap-learn")


@dataclass(frozen=True)
class Unit:
    """Everything that is asked for; what it is asked of (features, code) comes with the key.

    Attributes
    ----------
    protocol, dataset, model
        By name. `targets` are further datasets to measure on.
    method, options, grid, shots, seed, views, template, scale
        Of `prolip.evaluate.Trial`.
    """

    protocol: str
    dataset: str
    model: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    grid: tuple[dict[str, Any], ...] = ()
    shots: int | None = 16
    seed: int = 1
    views: int = 1
    template: str = "own"
    scale: float = 1.0
    targets: tuple[str, ...] = ()

    def spec(self) -> str:
        """The unit as JSON, the same text for the same unit."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_spec(cls, spec: str) -> Unit:
        """The inverse of `spec`."""
        fields = json.loads(spec)
        return cls(**{**fields, "grid": tuple(fields["grid"]), "targets": tuple(fields["targets"])})

    def key(self, inputs: str) -> str:
        """SHA-256 over the unit, the code and the libraries, and a digest of its inputs."""
        return hashlib.sha256(f"{self.spec()}\n{code_version()}\n{inputs}".encode()).hexdigest()


@functools.cache
def code_version() -> str:
    """A digest of the sources and libraries that decide a result; it needs no version control."""
    digest = hashlib.sha256()
    root = Path(prolip.__file__).parent
    for source in _SOURCES:
        place = root / source
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            if file.is_file():
                digest.update(f"{file.relative_to(root).as_posix()}\0".encode() + file.read_bytes())
    for library in _LIBRARIES:
        try:
            version = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            version = "absent"
        digest.update(f"{library}={version};".encode())
    digest.update(f"{platform.machine()} {platform.python_version_tuple()[:2]}".encode())
    return digest.hexdigest()[:16]
