"""`prolip demo`, on fewer images than users see."""

import json

from prolip import data
from prolip.cli import fit


def test_the_demo_leaves_photos_a_report_and_a_model_that_is_better(prolip, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "TRAIN", 4)
    monkeypatch.setattr(fit, "TEST", 3)
    out = tmp_path / "demo"
    code, said, err = prolip("demo", "-o", out, "--json")
    assert code == 0, err
    assert {file.name for file in out.iterdir()} == {"report.html", "textures-model", "photos"}
    figures = json.loads(said)
    assert figures["accuracy"] > figures["zero_shot_accuracy"] + 0.2
    assert len(data.list_images(out / "photos" / "train")) == 40
    code, found, err = prolip("eval", out / "textures-model", out / "photos", "--json")
    assert code == 0, err
    assert (json.loads(found)["accuracy"], json.loads(found)["images"]) == (figures["accuracy"], 30)
    code, said, err = prolip("demo", "-o", out)
    assert f"{100 * figures['accuracy']:.1f} % of 30 new ones" in said, err
