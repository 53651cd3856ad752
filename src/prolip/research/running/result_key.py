"""The key of a result. It covers everything that decides the result, so that different results differ in it.

That is the run itself, its inputs (images, texts, the encoder's weights and preprocessing: `prepare` has
their digest), the code that runs and the libraries that compute. Code and libraries of the towers count only
where a run uses one; for other runs the fingerprint of the features covers them.
"""

import functools
import hashlib
import importlib
import importlib.metadata
import platform
from pathlib import Path

import prolip
from prolip import methods
from prolip.research.protocols.run import Run

_SOURCES = (
    "core",
    "solvers",
    "methods",
    "evaluate",
    "data/sampling.py",
    "research/methods",
    "research/protocols",
)
_LIBRARIES = ("numpy", "scipy", "onnxruntime")
_TOWER_SOURCES = ("encoders", "features", "research/towers")
_TOWER_LIBRARIES = ("torch", "torchvision", "open_clip_torch", "timm", "transformers", "peft", "pillow")
_MANIFOLD_LIBRARIES = ("umap-learn", "scikit-learn", "numba", "pynndescent")


def result_key(run: Run, inputs: str) -> str:
    """Return the SHA-256 of the run, the code, the libraries, and a digest of the inputs."""
    return hashlib.sha256(f"{run.to_json()}\n{code_version(run)}\n{inputs}".encode()).hexdigest()


def runs_a_tower(method: str, protocol: str) -> bool:
    """Return whether a run needs the encoder itself, and not only its features."""
    return protocol.startswith(("test_time_", "timing_")) or methods.get(method).trains_tower


def code_version(run: Run) -> str:
    """Return a digest of the sources and libraries that decide a run's result."""
    return _version(run.method, runs_a_tower(run.method, run.protocol), run.protocol == "manifold")


@functools.cache
def _version(method: str, tower: bool, manifold: bool) -> str:
    digest = hashlib.sha256()
    root = Path(prolip.__file__).parent
    for place in (*(root / source for source in (*_SOURCES, *_TOWER_SOURCES * tower)), *_plugins(method)):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(f"{file.relative_to(place.parent).as_posix()}\0".encode() + file.read_bytes())
    for library in (*_LIBRARIES, *_TOWER_LIBRARIES * tower, *_MANIFOLD_LIBRARIES * manifold):
        digest.update(f"{library}={_installed(library)};".encode())
    digest.update(f"{platform.machine()} {platform.python_version_tuple()[:2]}".encode())
    return digest.hexdigest()[:16]


def _plugins(method: str) -> list[Path]:
    """Return where the code of methods from other packages is: a package's folder, or a file."""
    found = []
    for name in method.split("+"):
        package = methods.get(name).__module__.partition(".")[0]
        module = importlib.import_module(package)
        if package != "prolip" and module.__file__:
            file = Path(module.__file__)
            found.append(file.parent if file.name == "__init__.py" else file)
    return found


def _installed(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
