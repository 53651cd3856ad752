"""Faults that were found once, in names, places and crafted models."""

import csv
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api import evaluate as measure
from prolip.api import grow
from prolip.api import save as keep
from prolip.core import SavedModelError
from prolip.export.card import model_card
from prolip.export.saved import FORMAT

# Markup, formulas, ends of lines, escape sequences, other alphabets.
NAMES = ["a b", "=1+1", "'quoted", "-x", "@me", "a,b", 'say "hi"', "two\nlines"]
NAMES += ["\x1b[31m", "Žluť", "<b>|`*_"]


@pytest.mark.skipif(sys.platform != "linux", reason="names that other systems do not have")
def test_every_image_has_its_row_whatever_it_is_called(prolip, colour_model, offline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    colour_model.save(tmp_path / "model")
    Path("in").mkdir()
    for k, name in enumerate(NAMES):
        blotch(COLOURS["red"], k).save(f"in/{name}.png")
    expected = sorted(f"in/{name}.png" for name in NAMES)
    assert prolip("predict", "model", "in", "--out", "a.csv")[0] == 0
    with Path("a.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert sorted(row[0] for row in rows[1:]) == expected


def test_names_are_not_markup_in_a_model_card(colour_model):
    config = {**keep.describe(colour_model.model_), "classes": NAMES, "templates": ["a <i>photo</i> of `{}`"]}
    config["held_out"] = {**config["held_out"], "per_class": [0.5] * len(NAMES)}
    card = model_card({**config, "model": "hf:a/b\nlicense: mine"}, {"prolip.json"}, "../<script>\n# x")
    outside = []  # what is not inside backticks
    for line in card.partition("\n---\n")[2].splitlines():
        while "`" in line:
            before, _, rest = line.partition("`")
            ticks = "`" + rest[: len(rest) - len(rest.lstrip("`"))]
            _, closed, after = (line[len(before) + len(ticks) :]).partition(ticks)
            assert closed or ticks == "```"
            outside.append(before)
            line = after
        outside.append(line)
    text = "\n".join(outside)
    assert not any(mark in text for mark in ("<b>", "<i>", "<script>", "\x1b", "=1+1 |", "# x\n"))
    assert "\nlicense: mine" not in card
    rows = [line for line in card.splitlines() if line.startswith("|") and line.endswith("50.0 % |")]
    assert len(rows) == len(NAMES)
    assert all(line.replace("\\|", "").count("|") == 3 for line in rows)


@pytest.mark.filterwarnings("default")
def test_predict_does_without_a_cache(prolip, colour_model, tmp_path, monkeypatch):
    colour_model.save(tmp_path / "model")
    blotch(COLOURS["red"], 1).save(tmp_path / "a.png")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PROLIP_CACHE", str(tmp_path / "file" / "cache"))
    code, out, err = prolip("predict", tmp_path / "model", tmp_path / "a.png", "--json")
    assert code == 0, err
    assert json.loads(out)[0]["class"] == "red"
    assert "PROLIP_CACHE" in err


def test_a_crafted_model_is_refused(colour_model, tmp_path):
    """Shapes that contradict each other, with valid checksums."""
    from safetensors.numpy import save

    def craft(path, config, tensors, support):
        """Write a saved model around anything, with valid checksums."""
        for file in path.iterdir():
            file.unlink()
        files = {}
        for kind, arrays in (("prolip", tensors), ("support", support)):
            payload = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
            digest = hashlib.sha256(payload).hexdigest()
            files[f"{kind}-{digest[:16]}.safetensors"] = digest
            (path / f"{kind}-{digest[:16]}.safetensors").write_bytes(payload)
        (path / "prolip.json").write_text(json.dumps({"format": FORMAT, **config, "files": files}))

    model, path = colour_model.model_, tmp_path / "model"
    path.mkdir()
    hashes = np.frombuffer(b"".join(model.support.hashes), np.uint8).reshape(-1, 32)
    tensors = {**model.fitted.tensors(), **model.confidence.tensors()}
    tensors |= {"text": model.text.rows, "support": hashes}
    support = {"features": model.support.task.x, "labels": model.support.task.y}
    config = keep.describe(model)
    craft(path, config, tensors, support)
    assert FewShotClassifier.load(path).classes_.tolist() == sorted(COLOURS)
    for name, wrong in (
        ("classes", ["red", "green"]), ("classes", []), ("classes", ["red", "red", "blue"]),
        ("classes", ["red", "green", ["blue"]]), ("temperature", 1e-300),
        ("recipe", {**config["recipe"], "views": 10**9}),
        ("recipe", {**config["recipe"], "more": 1}),
        ("config", {"scale": float("nan")}), ("config", {"scale": [1e10]}), ("held_out", {"images": 3}),
        ("kind", "os:system"),
    ):  # fmt: skip
        craft(path, {**config, name: wrong}, tensors, support)
        with pytest.raises(SavedModelError):
            FewShotClassifier.load(path)
    for name, wrong in {
        "head.weight": tensors["head.weight"].T, "text": tensors["text"][:2], "support": hashes[:, :31],
        "out_of_distribution.means": np.zeros((3, 4), np.float32),
    }.items():  # fmt: skip
        craft(path, config, {**tensors, name: wrong}, support)
        with pytest.raises(SavedModelError):
            FewShotClassifier.load(path)


@pytest.mark.parametrize("use", ["add", "measure", "fit"])
def test_a_recipe_imports_no_module(colour_model, use, tmp_path, monkeypatch):
    """A module that a file names could be imported, and is not, whatever is done with the model."""
    (tmp_path / "left_alone.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    recipe = replace(colour_model.model_.recipe, method="left_alone:Method")
    model = replace(colour_model.model_, recipe=recipe)
    clf = FewShotClassifier(model.encoder, method="left_alone:Method")
    clf.model_ = model
    uses = {
        "add": lambda: grow.add_names(model, ["x"]),
        "measure": lambda: measure.evaluate_support(model),
        "fit": lambda: clf.fit(["one.png"], ["red"]),
    }
    with pytest.raises(SavedModelError):
        uses[use]()
