"""No command writes anything but what it was told to, its cache apart; nothing that was there changes."""

import hashlib

import pytest

from test_contracts import COMMANDS

TARGETS = ("-o", "--out", "--report", "--sort-into")
OTHERS = {
    "fit --card": "fit PHOTOS -o model --card",
    "classes --rename": "classes MODEL --rename red=crimson -o renamed",
    "add": "add MODEL PHOTOS/test -o grown",
    "embed": "embed MODEL PHOTOS -o index.npz --no-store",
    "models": "models",
}


def contents(*folders):
    """The hash of every file below these folders."""
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("line", {**COMMANDS, **OTHERS}.values())
def test_a_command_writes_what_it_was_told(prolip, photos, tmp_path, world, colour_model, line):
    colour_model.save(tmp_path / "saved")
    line = line.replace("MODEL", str(tmp_path / "saved")).replace("PHOTOS", str(photos))
    before, work = contents(tmp_path, world), world / "work"
    words = [*line.split(), "--json"]
    code, _, err = prolip(*words)
    assert code == 0, err
    after = contents(tmp_path, world)
    assert before.items() <= after.items()
    targets = [work / words[i + 1] for i, word in enumerate(words) if word in TARGETS]
    new = [path for path in after.keys() - before.keys() if not path.is_relative_to(world / "cache")]
    assert [path for path in new if not any(path.is_relative_to(target) for target in targets)] == []
    assert all(target.exists() for target in targets)
