"""`prolip demo`, on fewer pictures than users see."""

import json
import re
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


def test_the_demo_measures_reports_and_leaves_a_model(prolip, small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # nothing here needs it
    out = tmp_path / "demo"
    code, said, err = prolip("demo", "-o", out)
    assert code == 0, err
    names = {"report.html", "results.json", "textures-model", "photos"}
    assert {file.name for file in out.iterdir()} == names
    textures, numbers = json.loads((out / "results.json").read_text())["sets"]
    assert (textures["set"], numbers["set"]) == ("textures", "numbers")
    assert textures["accuracy"]["3"] > textures["zero_shot_accuracy"] + 0.2
    assert f"{100 * textures['accuracy']['3']:.1f}" in said
    code, found, err = prolip("predict", out / "textures-model", out / "photos" / "test", "--json")
    assert code == 0, err
    assert len(json.loads(found)) == 40


def test_the_report_has_every_test_image_and_both_predictions(small, tmp_path):
    seen = []
    demo.run(tmp_path, None, lambda what, done, total: seen.append(what))
    page = (tmp_path / "report.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    predicted = [image for image in data["images"] if "label" in image]
    compared = [image for image in data["images"] if "lines" in image]
    assert (len(predicted), len(compared)) == (40, 20)
    assert all(image["src"].startswith("data:image/jpeg") for image in data["images"])
    assert {line[0].split(":")[0] for image in compared for line in image["lines"][1:]} == {"before", "after"}
    assert page.count("data-chart=") == 1
    assert set(seen) == {f"{step} {name}" for step in ("encoding", "fitting") for name in demo.SETS}
