"""`prolip check`: what to fix in a folder of images."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from prolip.core import Task
from prolip.data import draw_textures
from prolip.evaluate.out_of_distribution import outlier_scores


@pytest.fixture(scope="module")
def drawn():
    return draw_textures(10)


@pytest.fixture
def textures(drawn, tmp_path):
    """Five textures with one of each fault; what is wrong with which file."""
    root = tmp_path / "textures"
    kinds = ["striped", "dotted", "chequered", "cracked", "spiralled"]
    pictures = {k: [drawn.images[10 * drawn.classes.index(k) + i] for i in range(10)] for k in kinds}
    for kind in kinds:
        for split in ("train", "test"):
            (root / split / kind).mkdir(parents=True)
        for i, picture in enumerate(pictures[kind]):
            picture.save(root / ("test" if i > 7 else "train") / kind / f"{kind}{i}.png")
    train = root / "train"
    (train / "striped" / "striped0.png").rename(train / "dotted" / "lost.png")
    shutil.copy(train / "dotted" / "dotted1.png", train / "dotted" / "dotted1 again.png")
    small = pictures["cracked"][2].resize((96, 96), Image.Resampling.LANCZOS)
    small.save(train / "spiralled" / "torn.png")
    shutil.copy(root / "test" / "chequered" / "chequered9.png", train / "chequered" / "leaked.png")
    (train / "cracked" / "broken.png").write_bytes(b"no picture")
    (train / "woven").mkdir()
    drawn.images[10 * drawn.classes.index("woven")].save(train / "woven" / "single.png")
    return root


def files(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def findings(outcome):
    """File name: kind, label and suggestion."""
    return {(row["path"].rpartition("/")[2], row["kind"]): row for row in outcome["findings"]}


def test_each_fault_is_found(prolip, textures, tmp_path):
    before = files(textures)
    page, table = tmp_path / "check.html", tmp_path / "check.csv"
    code, out, err = prolip("check", textures, "--report", page, "--out", table, "--json")
    assert code == 0, err
    outcome = json.loads(out)
    found = findings(outcome)
    assert found["lost.png", "label-error"]["suggestion"] == "striped"
    assert found["broken.png", "unreadable"]["label"] == "cracked"
    same = [name for name, kind in found if kind == "near-copy"]
    assert len({"dotted1.png", "dotted1 again.png"} & set(same)) == 1
    assert {name for name, kind in found if kind == "two-classes"} == {"cracked2.png", "torn.png"}
    assert found["leaked.png", "train-and-test"]["other"].endswith("test/chequered/chequered9.png")
    assert outcome["small_classes"] == ["woven"]
    assert files(textures) == before
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["kind"], row["path"], row["label"]) for row in rows] == [
        (r["kind"], r["path"], r["label"]) for r in outcome["findings"]
    ]
    (lost,) = (row for row in rows if row["path"].endswith("lost.png"))
    assert (lost["suggestion"], lost["reason"]) == ("striped", "")
    (broken,) = (row for row in rows if row["path"].endswith("broken.png"))
    assert broken["suggestion"] == ""
    assert broken["reason"]
    html = page.read_text()
    assert "probably striped" in html
    assert "data:image/jpeg;base64," in html
    shown = json.loads(re.search(r'id="data">(.*?)</script>', html)[1])
    lost = next(one for one in shown["images"] if one["name"].endswith("lost.png"))
    quality = found["lost.png", "label-error"]["score"]
    assert lost["lines"][2][0] == f"label quality {100 * quality:.2f}\u00a0%"
    assert {one["name"].split("/")[0] for one in shown["images"]} == {"train", "test"}


def test_a_picture_in_two_classes_names_the_one_in_the_other_class(prolip, textures):
    train = textures / "train"
    shutil.copy(train / "dotted" / "dotted1.png", train / "striped" / "dotted1.png")
    code, out, err = prolip("check", train, "--json")
    assert code == 0, err
    found = [
        row
        for row in json.loads(out)["findings"]
        if row["kind"] == "two-classes" and "dotted1" in row["path"]
    ]
    pairs = [(row["label"], row["other"].split("/")[-2]) for row in found]
    assert pairs == [("dotted", "striped"), ("dotted", "striped"), ("striped", "dotted")]


def test_a_picture_unlike_every_class_lies_below_the_fence():
    rng = np.random.default_rng(0)
    centres = np.eye(4, 30)
    y = np.repeat(np.arange(4), 20)
    x = centres[y] + rng.normal(0, 0.05, (80, 30))
    x[7] = np.eye(30)[29]
    scores, fence = outlier_scores(Task(x, y, rng.normal(size=(4, 30))))
    assert scores.argmin() == 7
    assert np.flatnonzero(scores < fence).tolist() == [7]
