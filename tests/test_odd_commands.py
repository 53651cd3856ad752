"""What cannot be meant is refused in one line, before any work, and nothing is written."""

from pathlib import Path

import pytest

from odd_lines import commands, every_line, odd_values, prepare


@pytest.fixture(scope="module")
def places(tmp_path_factory, colour_model):
    """What commands need to get as far as their options."""
    places = prepare(tmp_path_factory.mktemp("odd"))
    colour_model.save(places["saved"])
    return places


def snapshot(root):
    return {path: path.lstat().st_mtime_ns for path in Path(root).rglob("*")}


def test_every_option_is_tried():
    untried = [
        (path, option.name)
        for path, command in commands().items()
        for option in command.params
        if not odd_values(option) and not getattr(option, "is_flag", False)
    ]
    assert {name for _, name in untried} <= {"ray", "name_only", "root"}, untried


def test_odd_values_are_refused_in_one_line_and_nothing_is_written(prolip, places, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = snapshot(places["root"])
    for line in every_line(places):
        code, out, err = prolip(*line)
        told = [part for part in err.splitlines() if not part.startswith("warning:")]
        seen = f"{' '.join(line)[:300]} -> {code}: {out[-300:]}{err[-600:]}"
        assert code in (1, 2), seen
        assert out == "", seen
        assert len(told) == 1, seen
        assert told[0].startswith("error: "), seen
        assert "\x1b" not in err, seen
        assert snapshot(places["root"]) == before, seen
    assert not list(tmp_path.iterdir())
