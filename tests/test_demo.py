"""`prolip demo`, on fewer pictures than users see."""

import json
import sys

import pytest

from prolip import demo


@pytest.fixture
def small(offline, monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda *_: offline)
    monkeypatch.setattr(demo, "SHOTS", (1, 3))
    monkeypatch.setattr(demo, "SEEDS", (1,))
    monkeypatch.setattr(demo, "TRAIN", 3)
    monkeypatch.setattr(demo, "TEST", 4)


def test_without_matplotlib_there_is_a_report_and_a_line_that_names_the_extra(
    prolip, small, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "demo"
    code, said, err = prolip("demo", "-o", out)
    assert code == 0, err
    assert "pip install 'prolip[plot]'" in err
    assert {file.name for file in out.iterdir()} == {
        "report.html",
        "results.json",
        "textures-model",
        "pictures",
    }
    textures, numbers = json.loads((out / "results.json").read_text())["sets"]
    assert (textures["set"], numbers["set"]) == ("textures", "numbers")
    assert textures["accuracy"]["3"] > textures["zero_shot_accuracy"] + 0.2
    assert f"{100 * textures['accuracy']['3']:.1f}" in said
    assert "<img" not in (out / "report.html").read_text()
    code, answers, err = prolip("predict", out / "textures-model", out / "pictures", "--json")
    assert code == 0, err
    assert len(json.loads(answers)) == 10


def test_with_matplotlib_the_report_shows_plots(small, tmp_path):
    pytest.importorskip("matplotlib")
    seen = []
    summary = demo.run(tmp_path, None, lambda what, done, total: seen.append(what))
    assert summary["note"] is None
    assert (tmp_path / "report.html").read_text().count("<img") == 3
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert set(seen) == {f"{step} {name}" for step in ("encoding", "fitting") for name in demo.SETS}
