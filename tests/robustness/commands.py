"""Commands that write, each with the state that it starts from and what must hold afterwards.

After a kill, at any moment, a model is either the old one or the new one, an export has no old files beside
new ones, and the user's own files are unchanged. After a second run the folder holds what an undisturbed run
leaves.
"""

import csv
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from prolip import FewShotClassifier
from prolip.core import ProlipError
from prolip.io.writing import MARK
from robustness.process import Child, command

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 40), "=b|ue\n": (40, 40, 200)}
NOTE = "the user's own"


@dataclass(frozen=True)
class Job:
    """A command and its check.

    `check(folder, done)` yields what is wrong with a folder after a kill or, with `done`, after a whole run;
    `again` are the exit codes that a second run may have.
    """

    name: str
    arguments: tuple[str, ...]
    check: Callable[[Path, bool], Iterator[str]]
    again: tuple[int, ...] = (0,)


def prepare(folder: Path) -> None:
    """Make what every job starts from: images, a model of two of each class, an export."""
    for name, colour in COLOURS.items():
        for i in range(4):
            _image(folder / "photos" / name / f"{i}.png", colour, i)
    for i in range(3):
        _image(folder / "more" / "grey" / f"{i}.png", (120, 120, 120), i)
    runs = (
        ("fit", "photos", "-o", "model", "--shots", "2"),
        ("export", "model", "--to", "onnx", "-o", "export"),
    )
    for arguments in runs:
        require(folder, arguments)
    (folder / "rows.csv").unlink(missing_ok=True)
    for place in ("model", "export"):
        (folder / place / "notes.txt").write_text(NOTE)


def require(folder: Path, arguments: tuple[str, ...]) -> None:
    ran = Child(work(folder, arguments)).wait(300)
    if ran.code:
        raise SystemExit(f"prolip {' '.join(arguments)} failed:\n{ran.output}")


def work(folder: Path, arguments: tuple[str, ...]) -> Callable[[], None]:
    return command(arguments, folder, PROLIP_CACHE=str(folder / "cache"))


def _image(path: Path, colour: tuple[int, int, int], seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.array(colour) + np.random.default_rng(seed).normal(0, 25, (48, 48, 3))
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


class Checks:
    """Compare with what undisturbed runs left; `start` is the folder before any job."""

    def __init__(self, encoder: object, start: Path) -> None:
        self.encoder, self.start = encoder, start
        self.x = np.random.default_rng(0).standard_normal((5, 1280), dtype=np.float32)
        self.whole: dict[str, object] = {}  # what an undisturbed run left, by job

    def jobs(self) -> list[Job]:
        """Return every command that writes."""
        return [
            Job("fit", ("fit", "photos", "-o", "new"), self._model("fit", "new"), (0, 2)),
            Job("overwrite", ("fit", "photos", "-o", "model", "--force"),
                self._model("overwrite", "model")),
            Job("add", ("add", "model", "more"), self._model("add", "model"), (0, 2)),
            Job("predict", ("predict", "model", "photos", "--out", "rows.csv", "--top", "2"),
                self._predictions("predict", "rows.csv"), (0, 2)),
            Job("embed", ("embed", "model", "photos", "-o", "features.npz"),
                self._arrays("embed", "features.npz"), (0, 2)),
            Job("export onnx", ("export", "model", "--to", "onnx", "-o", "out"),
                self._folder("export onnx", "out"), (0, 2)),
            Job("export over", ("export", "grown", "--to", "onnx", "-o", "export", "--force"),
                self._folder("export over", "export")),
        ]  # fmt: skip

    def first_run(self, job: Job, folder: Path) -> list[str]:
        """Record what an undisturbed run leaves, and return what is wrong with it."""
        self.whole[job.name] = None
        return list(job.check(folder, True))

    def predictions_of(self, path: Path) -> str | None:
        """Return a hash of what a saved model predicts, or None if there is no model."""
        try:
            model = FewShotClassifier.load(path, base=self.encoder, store=False).model_
        except ProlipError:
            return None
        return hashlib.sha256(model.logits(self.x).tobytes() + repr(model.classes).encode()).hexdigest()

    def _model(self, job: str, name: str) -> Callable[[Path, bool], Iterator[str]]:
        def check(folder: Path, done: bool) -> Iterator[str]:
            found = self.predictions_of(folder / name)
            allowed = {self._undisturbed(job, found)} if done else {self.whole[job]}
            if not done:
                allowed.add(self.predictions_of(self.start / name))
            if found not in allowed:
                yield f"{name} predicts neither what it did before nor what it does after"
            if (self.start / name).exists():
                yield from _notes(folder / name)
            if done and job != "add":  # adding the same images twice is refused, and nothing is written
                yield from _stray(folder / name)

        return check

    def _predictions(self, job: str, name: str) -> Callable[[Path, bool], Iterator[str]]:
        def check(folder: Path, done: bool) -> Iterator[str]:
            rows = read_rows(folder / name)
            images = [row[0] for row in rows]
            if len(set(images)) < len(images):
                yield f"{len(images) - len(set(images))} rows are doubled"
            whole = self._undisturbed(job, sorted(rows)) if done else self.whole[job]
            if done and sorted(rows) != whole:
                yield "rows are lost or differ"
            if not done and not set(rows) <= set(whole):
                yield "rows that an undisturbed run does not have"

        return check

    def _arrays(self, job: str, name: str) -> Callable[[Path, bool], Iterator[str]]:
        def check(folder: Path, done: bool) -> Iterator[str]:
            if done or (folder / name).exists():
                with np.load(folder / name) as arrays:
                    found = {key: arrays[key].tolist() for key in arrays}
                if found != (self._undisturbed(job, found) if done else self.whole[job]):
                    yield f"{name} has half of the arrays"

        return check

    def _folder(self, job: str, name: str) -> Callable[[Path, bool], Iterator[str]]:
        def check(folder: Path, done: bool) -> Iterator[str]:
            found, old = contents(folder / name), contents(self.start / name)
            whole = self._undisturbed(job, found) if done else self.whole[job]
            if found != whole if done else not is_unmixed(found, old, whole):
                yield f"{name} has half a file"
            if old:
                yield from _notes(folder / name)

        return check

    def _undisturbed(self, job: str, found: object) -> object:
        """Return what an undisturbed run left: this one, if it is the first."""
        if self.whole[job] is None:
            self.whole[job] = found
        return self.whole[job]


def read_rows(path: Path) -> list[tuple[str, ...]]:
    """Return the rows of a prediction file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def is_unmixed(found: dict[str, str], old: dict[str, str], new: dict[str, str]) -> bool:
    """Whether each file in a folder is the old one or the new one; an interrupted export may lack some."""
    return all(content in (old.get(name), new.get(name)) for name, content in found.items())


def contents(folder: Path) -> dict[str, str]:
    """Return the hashes of the files in a folder, without temporary ones."""
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    files = [path for path in files if MARK not in str(path.relative_to(folder))]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _notes(folder: Path) -> Iterator[str]:
    if not (folder / "notes.txt").exists() or (folder / "notes.txt").read_text() != NOTE:
        yield "a file of the user is gone"


def _stray(folder: Path) -> Iterator[str]:
    """Yield what a second run should have removed; temporary files are still too recent."""
    listed = set(json.loads((folder / "prolip.json").read_text())["files"]) | {"prolip.json", "notes.txt"}
    if stray := {path.name for path in folder.iterdir() if not path.name.startswith(MARK)} - listed:
        yield f"{len(stray)} files are left over"


def copy(start: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start, folder, symlinks=True)
