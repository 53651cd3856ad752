"""Invalid values are refused in one line, before any work, and nothing is written."""

from pathlib import Path

import pytest

from odd_lines import commands, every_line, odd_values, prepare


@pytest.fixture(scope="module")
def places(tmp_path_factory, colour_model):
    """Everything that commands need to get as far as their options."""
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
    monkeypatch.setattr("prolip.app.launch.run", lambda *_: pytest.fail("a server was started"))
    before = snapshot(places["root"])
    for line in every_line(places):
        code, out, err = prolip(*line)
        problem = f"{' '.join(line)[:300]} -> {code}: {out[-300:]}{err[-600:]}"
        assert code in ((2,) if "" in line else (1, 2)), problem
        assert out == "", problem
        assert is_one_error(err), problem
        assert snapshot(places["root"]) == before, problem
    assert not list(tmp_path.iterdir())


def is_one_error(err):
    """Whether standard error has one line, beside warnings, and nothing that steers a terminal."""
    lines = [line for line in err.splitlines() if not line.startswith("warning:")]
    return len(lines) == 1 and lines[0].startswith("error: ") and "\x1b" not in err
