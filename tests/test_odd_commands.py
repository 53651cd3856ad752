"""What cannot be meant is refused in one line, before any work, and nothing is written."""

from pathlib import Path

import pytest

from odd_lines import commands, every_line, odd_values, prepare


@pytest.fixture(scope="module")
def places(tmp_path_factory, colour_model):
    """What commands need to get as far as their options."""
    places = prepare(tmp_path_factory.mktemp("odd"))
    colour_model.save(places["path"])
    return places


def snapshot(root):
    return {path: path.lstat().st_mtime_ns for path in Path(root).rglob("*")}


def test_every_option_with_a_value_is_tried_with_an_empty_one():
    tried = [option for command in commands().values() for option in command.params if odd_values(option)]
    assert len(tried) > 140
    assert all(odd_values(option)[0] == "" for option in tried)


@pytest.mark.every_environment
def test_odd_values_are_refused_in_one_line_and_nothing_is_written(prolip, places, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prolip.app.run.run", lambda *_: pytest.fail("a server was started"))
    before = snapshot(places["root"])
    for line in every_line(places):
        code, out, err = prolip(*line)
        told = [part for part in err.splitlines() if not part.startswith("warning:")]
        seen = f"{' '.join(line)[:300]} -> {code}: {out[-300:]}{err[-600:]}"
        assert code in ((2,) if "" in line else (1, 2)), seen
        assert out == "", seen
        assert len(told) == 1, seen
        assert told[0].startswith("error: "), seen
        assert "\x1b" not in err, seen
        assert snapshot(places["root"]) == before, seen
    assert not list(tmp_path.iterdir())
