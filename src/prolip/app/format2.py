"""Read a project of the format before SQLite: project.json, a snapshot, a journal of the changes since."""

import json
from pathlib import Path
from typing import Any

from prolip.app.state import Change, ClassRow, ImageRow, State, read_rows
from prolip.core import InputError


def read_format2(folder: Path) -> tuple[str, State]:
    """Return the name of the base model, and the tables."""
    try:
        about = json.loads((folder / "project.json").read_bytes())
        if about["format"] != 2 or not about["model"]:
            raise ValueError(f"its format is {about['format']}")
        snapshot: dict[str, Any] = {"revision": 0, "next_class": 1, "classes": {}, "images": {}}
        if (folder / "snapshot.json").is_file():
            snapshot = json.loads((folder / "snapshot.json").read_bytes())
        state = State(next_class=snapshot["next_class"])
        state.apply(_read_change(snapshot))
        journal = folder / f"journal-{int(snapshot['revision'])}.jsonl"
        for line in journal.read_bytes().splitlines(keepends=True) if journal.is_file() else ():
            if line.endswith(b"\n") and b"\0" not in line:  # the last may be incomplete
                state.apply(_read_change(json.loads(line)))
        return str(about["model"]), state
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the project in {folder} is damaged: {error}") from error


def _read_change(value: dict[str, Any]) -> Change:
    return Change("", read_rows(value["classes"], ClassRow), read_rows(value["images"], ImageRow))
