"""The functions that write, killed at every change of a file: quick, since no command is run."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prolip.core import ProlipError
from prolip.export.saved import SavedModel, read_model, write_model
from prolip.io.writing import MARK, write_folder, write_json
from robustness.commands import NOTE, is_unmixed
from robustness.kills import Tally
from robustness.process import Child


@dataclass(frozen=True)
class Writing:
    """How to write the old state and the new one, and which states are allowed in between."""

    name: str
    before: Callable[[Path], None]
    write: Callable[[Path], None]
    state: Callable[[Path], object]
    between: Callable[[object, object, object], bool] = lambda found, old, new: found in (old, new)


def _save(value: float, card: bool) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        tensors = {"w": np.full(3, value)}
        write_model(
            folder / "out", SavedModel({"value": value}, tensors, tensors, "# card" if card else None)
        )

    return save


def _saved(folder: Path) -> object:
    try:
        model = read_model(folder / "out")
    except ProlipError:
        return None
    return model.config["value"], model.tensors["w"].tolist(), model.support["w"].tolist()


def _export(value: int) -> Callable[[Path], None]:
    def fill(made: Path) -> None:
        for name in ("a.json", "b.json"):
            write_json(made / name, value)

    return lambda folder: write_folder(folder / "out", fill, replace=True)


def _exported(folder: Path) -> object:
    files = list((folder / "out").iterdir()) if (folder / "out").exists() else []
    return {path.name: path.read_text() for path in files if not path.name.startswith(MARK)}


def writings() -> list[Writing]:
    """Return every writer that replaces something or adds to it."""
    return [
        Writing("a new model", lambda folder: None, _save(2, True), _saved),
        Writing("a model over a model", _save(1, True), _save(2, True), _saved),
        Writing("a model without a card over one with", _save(1, True), _save(2, False), _saved),
        Writing("an export over an export", _export(1), _export(2), _exported, is_unmixed),
    ]


def careless() -> Writing:
    """Return a writer that leaves a part: the trials have to notice it."""

    def write(folder: Path) -> None:
        for name in ("a", "b"):
            (folder / f"out.{name}").write_text("new")

    def state(folder: Path) -> object:
        return [(folder / f"out.{name}").exists() for name in ("a", "b")]

    return Writing("careless", lambda folder: None, write, state)


def library_kills(folder: Path) -> list[Tally]:
    """Kill every writer at each of its changes, and run it again."""
    return [killed(writing, folder) for writing in writings()]


def killed(writing: Writing, folder: Path) -> Tally:
    tally = Tally(f"kills at every change: {writing.name}")
    old, new, changes = _states(writing, folder)
    for at in range(1, changes + 1):
        _start(writing, folder)
        tally.trials += 1
        tally.judge(Child(lambda: writing.write(folder), at).wait(), (0, -9))
        if not writing.between(writing.state(folder), old, new):
            tally.add("silent change", f"{writing.name}, at change {at}: {writing.state(folder)!r:.300}")
        tally.judge(Child(lambda: writing.write(folder)).wait(), (0,))
        if writing.state(folder) != new:
            tally.add(
                "lost or doubled",
                f"{writing.name}, at change {at}, then again: {writing.state(folder)!r:.300}",
            )
        for problem in _bystanders(folder):
            tally.add("lost or doubled", f"{writing.name}, at change {at}: {problem}")
    return tally


def _states(writing: Writing, folder: Path) -> tuple[object, object, int]:
    _start(writing, folder)
    old = writing.state(folder)
    ran = Child(lambda: writing.write(folder)).wait()
    return old, writing.state(folder), ran.changes


def _start(writing: Writing, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text(NOTE)
    writing.before(folder)
    if (folder / "out").exists():
        (folder / "out" / "notes.txt").write_text(NOTE)


def _bystanders(folder: Path) -> Iterator[str]:
    """Yield changed files of the user, and files that nothing would ever remove."""
    notes = [folder / "notes.txt", *(folder / "out").glob("notes.txt")]
    if any(path.read_text() != NOTE for path in notes):
        yield "a file of the user was changed"
    stray = [p.name for p in folder.iterdir() if not p.name.startswith((MARK, "out", "notes"))]
    if stray:
        yield f"{stray[0]} is left over"
