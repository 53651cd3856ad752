"""The key of a result: whatever decides it is in the key, so that no two different results share a row.

That is the unit itself, its inputs (pictures, texts, the encoder's weights and preprocessing: `prepare` has
their digest), the code that runs and the libraries that compute. Code and libraries of the towers count only
where a unit runs one: for the others their work is done, and the features' fingerprint stands for it.
"""

import functools
import hashlib
import importlib
import importlib.metadata
import platform
from pathlib import Path

import prolip
from prolip import methods
from prolip.research.running.unit import Unit

_SOURCES = (
    "core", "solvers", "methods", "evaluate", "data/sampling.py", "research/protocols",
    "research/running/execute.py",
)  # fmt: skip
_LIBRARIES = ("numpy", "scipy", "onnxruntime")
_TOWER_SOURCES = ("encoders", "features", "research/towers")
_TOWER_LIBRARIES = ("torch", "torchvision", "open_clip_torch", "timm", "transformers", "peft", "pillow")
_MANIFOLD_SOURCES = ("research/running/manifold.py",)
_MANIFOLD_LIBRARIES = ("umap-learn", "scikit-learn", "numba", "pynndescent")


def result_key(unit: Unit, inputs: str) -> str:
    """SHA-256 over the unit, the code and the libraries, and a digest of its inputs."""
    return hashlib.sha256(f"{unit.as_json()}\n{code_version(unit)}\n{inputs}".encode()).hexdigest()


def runs_a_tower(unit: Unit) -> bool:
    """Whether the unit needs the encoder itself, and not only its features."""
    method = methods.get(unit.trial.setting.method)
    return unit.protocol.startswith("test_time_") or method.trains_tower


def code_version(unit: Unit) -> str:
    """A digest of the sources and libraries that decide a unit's result; it needs no version control."""
    return _version(unit.trial.setting.method, runs_a_tower(unit), unit.protocol == "manifold")


@functools.cache
def _version(method: str, tower: bool, manifold: bool) -> str:
    digest = hashlib.sha256()
    root = Path(prolip.__file__).parent
    sources = (*_SOURCES, *_TOWER_SOURCES * tower, *_MANIFOLD_SOURCES * manifold)
    for place in (*(root / source for source in sources), *_plugins(method)):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(f"{file.relative_to(place.parent).as_posix()}\0".encode() + file.read_bytes())
    for library in (*_LIBRARIES, *_TOWER_LIBRARIES * tower, *_MANIFOLD_LIBRARIES * manifold):
        digest.update(f"{library}={_installed(library)};".encode())
    digest.update(f"{platform.machine()} {platform.python_version_tuple()[:2]}".encode())
    return digest.hexdigest()[:16]


def _plugins(method: str) -> list[Path]:
    """Where the code of methods from other packages is: a package's folder, or a file."""
    found = []
    for name in method.split("+"):
        top = methods.get(name).__module__.partition(".")[0]
        module = importlib.import_module(top)
        if top != "prolip" and module.__file__:
            file = Path(module.__file__)
            found.append(file.parent if file.name == "__init__.py" else file)
    return found


def _installed(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
