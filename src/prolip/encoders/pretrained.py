"""Pretrained models by short names, and how their files get here.

Files come from the Hugging Face hub (or HF_ENDPOINT) into its own cache, which other programs share. Nothing
is downloaded unless the caller says so: `find_files` looks at what is there, `download` gets the rest. Every
file is compared with the size and the SHA-256 that are known for it: those of the table below, or those that
the hub states for large files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prolip.core.errors import ModelError, ProlipError, UsageError, first_line
from prolip.encoders.onnx_files import ModelFiles, choose_files, split_precision
from prolip.io.files import cache_dir, file_state, sha256_file
from prolip.io.locks import TIMEOUT, LockedError, lock_file, locked
from prolip.io.reading import ReadError, read_json
from prolip.io.writing import write_json

if TYPE_CHECKING:
    pass

Progress = Callable[[int, int], None]  # (done, total) bytes
_Found = TypeVar("_Found")
RETRIES = 5  # after connections that break off


@dataclass(frozen=True)
class PretrainedModel:
    """A model that has a short name.

    Sizes are those of the files of the precision that is taken. A file whose hash is not listed is compared
    with the one that the hub states.
    """

    title: str
    repository: str
    precision: str  # the fastest on a CPU that is as accurate after a fit
    megabytes: int
    licence: str
    width: int  # of the features before the projection
    scale: float = 100.0
    original: str | None = None  # the weights that it was made of, as transformers or open_clip has them
    revision: str | None = None  # a commit; None is the newest
    sha256: dict[str, str] = field(default_factory=dict)  # by file
    free: bool = True  # whether the licence allows every use


# int8 for vision transformers; convolutional towers are slower in dynamic int8 than in float32. Commits and
# hashes are those that several public programs pin and check. Models without a commit were not found pinned
# anywhere: they are taken as the hub has them.
_TABLE = Path(__file__).with_suffix(".json").read_text("utf-8")
MODELS = {name: PretrainedModel(**about) for name, about in json.loads(_TABLE).items()}


def list_models() -> list[dict[str, Any]]:
    """List `offline` and the models that have a short name, and what is known about them here."""
    offline = {
        "name": "offline",
        "title": "two small networks, not CLIP",
        "megabytes": 0,
        "licence": None,
        "free": True,
        "downloaded": True,
    }
    pretrained = [
        {
            "name": name,
            "title": model.title,
            "megabytes": model.megabytes,
            "licence": model.licence,
            "free": model.free,
            "downloaded": is_here(name),
            "precision": model.precision,
            "width": model.width,
            "repository": model.repository,
        }
        for name, model in MODELS.items()
    ]
    return [offline, *pretrained]


class DownloadRequiredError(ModelError):
    """A model is not on this machine, and nobody said that it may be downloaded."""

    def __init__(self, name: str, source: Source) -> None:
        self.name, self.source = name, source
        size = f"about {source.megabytes} MB, licence {source.licence}" if source.known else "size unknown"
        super().__init__(
            f"{name} is not on this machine ({size}): download it with `prolip models get {name}`"
        )


class LicenceWarning(UserWarning):
    """A model that is about to be downloaded has a licence that does not allow every use."""


class ChecksumError(ModelError):
    """A downloaded file is not the one that was expected; it was removed."""

    def __init__(self, file: str, expected: str, found: str) -> None:
        self.file, self.expected, self.found = file, expected, found
        super().__init__(
            f"{file} has the SHA-256 {found[:16]}... instead of {expected[:16]}...: the download is "
            "damaged, or the file has changed at its source; it was removed, try again"
        )


@dataclass(frozen=True)
class Source:
    """Where a model's files are on the hub."""

    repository: str
    precision: str
    subfolder: str = ""
    known: PretrainedModel | None = None

    def revision_of(self, repository: str) -> str | None:
        """Return the commit that is taken; None is the newest."""
        return self.known.revision if self.known and repository == self.repository else None

    @property
    def megabytes(self) -> int | None:
        """Size of the download, where it is known."""
        return self.known.megabytes if self.known and self.precision == self.known.precision else None

    @property
    def licence(self) -> str | None:
        """Licence of the weights, where it is known."""
        return self.known.licence if self.known else None


def find_source(name: str) -> Source:
    """Return where a model is: a short name, or `onnx:OWNER/REPOSITORY[:FOLDER][@PRECISION]`."""
    short, _, precision = name.partition("@")
    if short in MODELS:
        known = MODELS[short]
        return Source(known.repository, precision or known.precision, known=known)
    rest, precision = split_precision(name.removeprefix("onnx:"))
    repository, _, subfolder = rest.partition(":")
    owner, slash, project = repository.partition("/")
    if not (owner and slash and project) or "/" in project:
        raise UsageError(
            f"{name!r} is neither a folder nor a repository: write onnx:FOLDER or onnx:OWNER/REPOSITORY"
        )
    return Source(repository, precision, subfolder.strip("/"))


# A file of a model: its name in the layout, the repository that has it, and its name there.
Listing = dict[str, tuple[str, str]]
CLIP_TOKENIZER = ("Xenova/clip-vit-base-patch32", "tokenizer.json")  # for repositories that have towers alone


def find_files(source: Source) -> tuple[ModelFiles, dict[str, Path]] | None:
    """Return the files of a model in the hub's cache, and where they are; None where one is missing."""
    folders = {repository: _snapshot(repository, source) for repository in _repositories(source)}
    names = {repository: _names_in(folder) for repository, folder in folders.items()}
    listing = _listing(source, names)
    with suppress(ModelError):
        files = choose_files(source.repository, listing, source.precision, strict=True)
        paths = {}
        for name in files.all():
            repository, file = listing[name]
            folder = folders.get(repository) or _snapshot(repository, source)
            path = folder / file if folder else None
            if path is None or not path.is_file():
                return None
            paths[name] = path
        return files, paths
    return None


def download(name: str, source: Source, progress: Progress | None = None) -> None:
    """Get the files of a model from the hub, resuming what was begun, and check them."""
    from huggingface_hub import HfApi, constants, hf_hub_download, hf_hub_url, try_to_load_from_cache

    constants.HF_HUB_DISABLE_TELEMETRY = True  # nothing but the download leaves this machine
    constants.DOWNLOAD_CHUNK_SIZE = 1 << 20  # bytes between two reports
    endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    api = HfApi(endpoint=endpoint)
    try:
        infos = {
            repository: api.model_info(
                repository, revision=source.revision_of(repository), files_metadata=True, timeout=20
            )
            for repository in _repositories(source)
        }
        about = {
            (repository, each.rfilename): each
            for repository, info in infos.items()
            for each in info.siblings or ()
        }
        listing = _listing(source, {r: [f for owner, f in about if owner == r] for r in infos})
        files = choose_files(source.repository, listing, source.precision)
        sizes = {file: getattr(about.get(listing[file]), "size", None) or 0 for file in files.all()}
        done, total = 0, sum(sizes.values())
        for file in files.all():
            repository, there = listing[file]
            revision = infos[repository].sha if repository in infos else None
            stated = getattr(about.get(listing[file]), "lfs", None)
            digest = stated.sha256 if stated else None
            check = partial(_check, file=there, source=source, stated=digest)
            report = _reporting(progress, done, total)
            blob = _cache(repository) / "blobs" / digest if digest else None
            if blob and not isinstance(try_to_load_from_cache(repository, there, revision=revision), str):
                url = hf_hub_url(repository, there, revision=revision, endpoint=endpoint)
                _retry(partial(_get_blob, url, blob, sizes[file], check, **report))
            get = partial(hf_hub_download, repository, there, revision=revision, endpoint=endpoint, **report)
            path = Path(_retry(get))
            check(path)
            if blob and path.resolve() != blob.resolve():  # links are not supported: it is a copy
                blob.unlink(missing_ok=True)
            done += sizes[file]
            if progress is not None:
                progress(done, total)
    except LockedError as error:
        raise ModelError(f"{name} is being downloaded by another process: wait until it is here") from error
    except ProlipError:
        raise
    except Exception as error:  # of the network, in the words of several libraries
        raise ModelError(_unreachable(name, source, error)) from error
    for repository, info in infos.items():
        if source.revision_of(repository) is None and info.sha:
            _note_newest(repository, info.sha)


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


def is_hub_name(name: str) -> bool:
    """Whether a name is that of a model on the hub: a short name, or onnx:OWNER/REPOSITORY."""
    if name.partition("@")[0] in MODELS:
        return True
    rest = split_precision(name.removeprefix("onnx:"))[0]
    return (
        name.startswith("onnx:")
        and not Path(rest).expanduser().is_dir()
        and not rest.startswith((".", "/", "~"))
    )


def is_here(name: str) -> bool:
    """Whether the files of a model of the hub are on this machine."""
    return find_files(find_source(name)) is not None


def _repositories(source: Source) -> list[str]:
    """Return the repositories that a model's towers are in: Qdrant has one for each."""
    found = [source.repository]
    if source.repository.endswith("-vision"):
        found.append(source.repository.removesuffix("-vision") + "-text")
    return found


def _listing(source: Source, names: dict[str, list[str]]) -> Listing:
    """Return what there is under the names of a layout."""
    prefix = f"{source.subfolder}/" if source.subfolder else ""
    found: Listing = {}
    for repository, files in names.items():
        for file in files:
            if not file.startswith(prefix):
                continue
            name = file.removeprefix(prefix)
            if len(names) > 1 and name.endswith(".onnx"):
                name = f"{'vision' if repository == source.repository else 'text'}/{name}"
            found.setdefault(name, (repository, file))
    if not any(name.endswith("tokenizer.json") for name in found):
        found["tokenizer.json"] = CLIP_TOKENIZER
    return found


def _cache(repository: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def _snapshot(repository: str, source: Source) -> Path | None:
    """Return the folder of a repository in the hub's cache."""
    commit = source.revision_of(repository)
    if commit is None:
        with suppress(OSError):
            commit = (_cache(repository) / "refs" / "main").read_text(encoding="ascii").strip()
    folder = _cache(repository) / "snapshots" / (commit or "none")
    return folder if folder.is_dir() else None


def _names_in(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _note_newest(repository: str, commit: str) -> None:
    """Note which commit is the newest, as the hub's own library does when `main` is requested."""
    note = _cache(repository) / "refs" / "main"
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(commit, encoding="ascii")


def _check(path: Path, file: str, source: Source, stated: str | None) -> None:
    """Compare a file with the hash of the table, or else with the one that the hub stated for it."""
    expected = (source.known.sha256.get(file) if source.known else None) or stated
    if expected is None:
        return
    if (found := file_sha256(path)) != expected:
        path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise ChecksumError(file, expected, found)


def _get_blob(url: str, blob: Path, size: int, check: Callable[[Path], None], **options: Any) -> None:
    """Get a large file into the hub's cache, and continue what an earlier download left.

    The hub's own library deletes what it has of a file when it is interrupted. Both name a file by its
    SHA-256, so that the parts of a file that has changed since are never joined.
    """
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    part = blob.with_name(f"{blob.name}.prolip.incomplete")
    part.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock_file(part), blob, TIMEOUT):
        if blob.exists():
            return
        with part.open("ab") as stream:
            get = partial(http_get, url, stream, headers=build_hf_headers(), expected_size=size, **options)
            if stream.tell() > size:
                stream.truncate(stream.seek(0))
            try:
                get(resume_size=stream.tell())
            except OSError:
                if stream.tell() <= size:
                    raise
                # The server sent the whole file, which earlier versions of the hub's library append.
                stream.truncate(stream.seek(0))
                get()
        check(part)
        part.replace(blob)


def _retry(get: Callable[[], _Found]) -> _Found:
    """Call again what a connection that broke off ended."""
    for attempt in range(RETRIES + 1):
        try:
            return get()
        except Exception as error:
            if attempt == RETRIES or not type(error).__module__.startswith("httpx"):
                raise
    raise AssertionError("unreachable")


def _reporting(progress: Progress | None, done: int, total: int) -> dict[str, Any]:
    """Return what makes the hub's library report bytes of one file as a part of all."""
    if progress is None:
        return {}
    from tqdm.auto import tqdm

    report = progress

    class Reporting(tqdm):
        """A bar that is not drawn: that is up to the caller of `download`."""

        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)  # of the hub's own bars
            super().__init__(*args, **{**options, "file": io.StringIO(), "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            """Report the bytes of this file and of those before it."""
            shown: bool | None = super().update(n)
            report(min(total, done + int(self.n)), total)
            return shown

    return {"tqdm_class": Reporting}


def _unreachable(name: str, source: Source, error: Exception) -> str:
    folders = [_cache(repository) for repository in _repositories(source)]
    names = " and ".join(folder.name for folder in folders)
    return (
        f"{name} cannot be downloaded: {first_line(error)}; on a machine with a network, run `prolip models "
        f"get {name}`, and copy {names} from the hub's cache there to {folders[0].parent} here; the model "
        "'offline' needs no download"
    )
