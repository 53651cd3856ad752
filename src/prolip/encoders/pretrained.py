"""Pretrained models by short names, and how their files get here.

Files come from the Hugging Face hub (or HF_ENDPOINT) into its own cache, which other programs share. Nothing
is downloaded unless the caller says so: `find_files` looks at what is there, `download` gets the rest. Every
file is compared with the SHA-256 that is known for it: that of the table below, or that the hub states. The
weights of `offline` come inside installed packages: `PackagedFile`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prolip.core.errors import ModelError, Parameter, ProlipError, UsageError, first_line
from prolip.encoders.onnx_files import choose_files, split_precision
from prolip.io.files import cache_dir, file_state, sha256_file
from prolip.io.reading import ReadError, read_json
from prolip.io.writing import write_json

Progress = Callable[[int, int], None]  # (done, total) bytes
Listing = dict[str, tuple[str, str, str | None]]  # of a file: repository, name there, commit


@dataclass(frozen=True)
class PretrainedModel:
    """A model of the hub: one that has a short name, or a repository of which nothing else is known."""

    title: str
    repository: str
    precision: str  # the fastest on a CPU that is as accurate after a fit
    megabytes: int = 0  # of the files of this precision; 0 where that is not known
    licence: str | None = None
    scale: float | None = None
    original: str | None = None  # the weights that it was made of, as transformers or open_clip has them
    revision: str | None = None  # a commit; None is the newest
    subfolder: str = ""  # of the repository
    tokenizer: tuple[str, str, str] | None = None  # repository, file and commit, where it is elsewhere
    sha256: dict[str, str] = field(default_factory=dict)  # by file
    recommended: bool = False


# Commits and hashes are those that public programs pin and check; nobody here has downloaded the files.
_TABLE = Path(__file__).with_suffix(".json").read_text("utf-8")
MODELS = {name: PretrainedModel(**about) for name, about in json.loads(_TABLE).items()}
# For repositories that have towers alone.
CLIP_TOKENIZER = (MODELS["clip-openai-b32"].repository, "tokenizer.json", MODELS["clip-openai-b32"].revision)


def list_models() -> list[dict[str, Any]]:
    """List `offline` and the models that have a short name, and what is known about them here."""
    keys = ("title", "megabytes", "licence", "recommended")
    models = {"offline": PretrainedModel("two small networks, not CLIP", "", "fp32"), **MODELS}
    return [
        {
            "name": name,
            **{key: getattr(model, key) for key in keys},
            "downloaded": name == "offline" or is_here(name),
        }
        for name, model in models.items()
    ]


class DownloadRequiredError(ModelError):
    """A model is not on this machine, and nobody said that it may be downloaded."""

    def __init__(self, name: str, source: PretrainedModel) -> None:
        self.name = name
        size = f"about {source.megabytes} MB" if source.megabytes else "size unknown"
        licence = f", licence {source.licence}" if source.licence else ""
        super().__init__(
            f"{name} is not on this machine ({size}{licence}): download it with ",
            Parameter("download", True),
        )


def find_source(name: str) -> PretrainedModel:
    """Return where a model is: a short name, or `onnx:OWNER/REPOSITORY[:FOLDER][@PRECISION]`."""
    short, _, precision = name.partition("@")
    if short in MODELS:
        known = MODELS[short]
        return (
            known if precision in ("", known.precision) else replace(known, precision=precision, megabytes=0)
        )
    rest, precision = split_precision(name.removeprefix("onnx:"))
    repository, _, subfolder = rest.partition(":")
    if not re.fullmatch("[^/]+/[^/]+", repository):
        raise UsageError(
            f"{name!r} is neither a folder nor a repository: write onnx:FOLDER or onnx:OWNER/REPOSITORY"
        )
    return PretrainedModel(repository, repository, precision, subfolder=subfolder.strip("/"))


def find_files(source: PretrainedModel) -> dict[str, Path] | None:
    """Return where the files of a model are in the hub's cache, towers first; None where one is missing."""
    folder = _snapshot(source.repository, source.revision)
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    listing = _listing(source, names)
    with suppress(ModelError):
        paths = {}
        for name in choose_files(source.repository, listing, source.precision):
            repository, file, revision = listing[name]
            paths[name] = _snapshot(repository, revision) / file
        if all(path.is_file() for path in paths.values()):
            return paths
    return None


def download(name: str, source: PretrainedModel, progress: Progress | None = None) -> None:
    """Get the files of a model from the hub into its cache, and check them."""
    from huggingface_hub import HfApi, constants, hf_hub_download

    endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    try:
        info = HfApi(endpoint=endpoint).model_info(
            source.repository, revision=source.revision, files_metadata=True, timeout=20
        )
        about = {each.rfilename: each for each in info.siblings or ()}
        listing = _listing(source, about)
        files = choose_files(source.repository, listing, source.precision)
        sizes = [getattr(about.get(listing[file][1]), "size", None) or 0 for file in files]
        for i, file in enumerate(files):
            repository, there, revision = listing[file]
            bar = _bar(progress, sum(sizes[:i]), sum(sizes)) if progress else None
            path = hf_hub_download(repository, there, revision=revision, endpoint=endpoint, tqdm_class=bar)
            stated = getattr(about.get(there), "lfs", None) if repository == source.repository else None
            _check(Path(path), source.sha256.get(file) or (stated and stated.sha256))
        if progress is not None:
            progress(sum(sizes), sum(sizes))
    except ProlipError:
        raise
    except Exception as error:  # of the network or of the disk, in the words of several libraries
        cache = _cache(source.repository)
        raise ModelError(
            f"{name} cannot be downloaded: {first_line(error)}; check the name (a private repository needs "
            f"`hf auth login`) and the network, or run `prolip models get {name}` on another machine and "
            f"copy {cache.name} from its hub's cache to {cache.parent}; 'offline' needs no download"
        ) from error


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file; of one that has not changed since, from a note in the cache folder."""
    place = os.path.realpath(path)
    state = [place, *file_state(place)]
    key = hashlib.sha256(os.fsencode(place)).hexdigest()
    note = cache_dir() / "digests" / f"{key[:32]}.json"
    with suppress(ReadError, OSError, KeyError, TypeError):
        known = read_json(note)
        if known["file"] == state:
            return str(known["sha256"])
    digest = sha256_file(Path(place))
    with suppress(OSError, ProlipError):
        write_json(note, {"file": state, "sha256": digest})
    return digest


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


def is_hub_name(name: str) -> bool:
    """Whether a name is that of a model on the hub: a short name, or onnx:OWNER/REPOSITORY."""
    kind, _, rest = name.partition(":")
    if kind != "onnx":
        return name.partition("@")[0] in MODELS
    folder = Path(split_precision(rest)[0]).expanduser()
    return not (folder.is_dir() or folder.is_absolute() or rest.startswith((".", "~")))


def is_here(name: str) -> bool:
    """Whether the files of a model of the hub are on this machine."""
    return find_files(find_source(name)) is not None


def _listing(source: PretrainedModel, names: Iterable[str]) -> Listing:
    """Return where the files of a model are, by their names in its folder."""
    prefix = f"{source.subfolder}/" if source.subfolder else ""
    listing: Listing = {
        name.removeprefix(prefix): (source.repository, name, source.revision)
        for name in names
        if name.startswith(prefix)
    }
    if not any(name.endswith("tokenizer.json") for name in listing):
        listing["tokenizer.json"] = source.tokenizer or CLIP_TOKENIZER
    return listing


def _cache(repository: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def _snapshot(repository: str, commit: str | None) -> Path:
    """Return where the hub's cache has the files of a commit, or of the newest that it knows."""
    folder = _cache(repository)
    if commit is None:
        with suppress(OSError):
            commit = (folder / "refs" / "main").read_text(encoding="ascii").strip()
    return folder / "snapshots" / (commit or "none")


def _check(path: Path, expected: str | None) -> None:
    """Compare a file with its hash; remove one of another content."""
    if expected is not None and (found := file_sha256(path)) != expected:
        path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise ModelError(
            f"{path.name} has the SHA-256 {found[:16]}... instead of {expected[:16]}...: the download is "
            "damaged, or the file has changed at its source; it was removed, try again"
        )


def _bar(report: Progress, done: int, total: int) -> Any:
    """Return a progress bar for the hub's library that reports bytes of one file as a part of all."""
    from tqdm.auto import tqdm

    class Bar(tqdm):
        """A bar that is not drawn: that is up to the caller of `download`."""

        def __init__(self, *args: Any, name: str = "", **options: Any) -> None:
            super().__init__(*args, **{**options, "file": io.StringIO(), "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            """Report the bytes of this file and of those before it."""
            shown: bool | None = super().update(n)
            report(min(total, done + int(self.n)), total)
            return shown

    return Bar
