"""The key of a result. It covers everything that decides the result, so that different results differ in it.

That is the run itself, its inputs (images, texts, the encoder's weights and preprocessing), the libraries
that compute, and the code that runs: the modules of its method and of the protocols, and all that these
import, without comments and docstrings. Encoders, towers and their libraries count only where a run uses one;
for other runs the inputs cover them.
"""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator
from pathlib import Path

from prolip import methods
from prolip.research.protocols.run import Run

_PROTOCOLS = "prolip.research.protocols.protocols"
_TOWERS = ("prolip.encoders", "prolip.features", "prolip.io", "prolip.research.towers")
_LIBRARIES = ("numpy", "scipy", "onnxruntime")
_TOWER_LIBRARIES = ("torch", "torchvision", "open_clip_torch", "timm", "transformers", "peft", "pillow")


def result_key(run: Run, inputs: str) -> str:
    """Return the SHA-256 of the run, the code, the libraries, and a digest of the inputs."""
    code = code_version(run.method, run.runs_tower)
    return hashlib.sha256(f"{run.to_json()}\n{code}\n{inputs}".encode()).hexdigest()


@functools.cache
def code_version(method: str, tower: bool) -> str:
    """Return a digest of the sources and libraries that decide the results of a method."""
    digest = hashlib.sha256(f"{platform.machine()} {platform.python_version_tuple()[:2]}".encode())
    modules = {methods.get(name).__module__ for name in (method, *method.split("+"))}
    for name, code in sorted(_imported({_PROTOCOLS, *modules}, () if tower else _TOWERS).items()):
        digest.update(f"{name}\0{code}".encode())
    for library in (*_LIBRARIES, *_TOWER_LIBRARIES * tower):
        digest.update(f"{library}={_installed(library)};".encode())
    return digest.hexdigest()[:16]


def _imported(modules: set[str], left_out: tuple[str, ...]) -> dict[str, str]:
    """Return the code of modules and of all that they import from their own package or from prolip."""
    packages = {name.partition(".")[0] for name in modules} | {"prolip"}
    waiting, codes = list(modules), dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name in codes or name.startswith(left_out or "\0") or name.partition(".")[0] not in packages:
            continue
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):  # a name inside a module
            continue
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            codes[name], imports = _code(Path(spec.origin))
            waiting += imports
    return codes


@functools.cache
def _code(file: Path) -> tuple[str, list[str]]:
    """Return the code of a file without comments and docstrings, and the names that it imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, False):
            del node.body[0]
    return ast.dump(tree), list(_imports(tree))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _installed(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
