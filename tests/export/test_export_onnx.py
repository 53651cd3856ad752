"""ONNX graphs of the offline encoder, written without torch."""

import json
import random
import re
import sys

import numpy as np
import onnxruntime
import pytest
from PIL import Image, ImageOps

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.core import Head, ModelError, Projected, UsageError
from prolip.core.arrays import softmax, unit_rows
from prolip.export.formats import Export
from prolip.export.formats import export as write
from prolip.methods.classifiers import (
    CacheClassifier,
    LinearClassifier,
    TextProjected,
)
from test_features import noise

TEMPLATE = "a photo of a {}."
CONFIG = {
    "prolip": "0", "model": "offline", "method": "prolip", "kind": "projected", "classes": list(COLOURS),
    "templates": [TEMPLATE], "temperature": 1.25, "fingerprint": "f", "fit": {"images": 4, "shots": 2.0},
}  # fmt: skip
RNG = np.random.default_rng(0)


def export(path, encoder, fitted, config, to, force=False):
    """Write a model in some formats, with all of its graphs."""
    return write(path, Export(encoder, fitted, config, all_graphs=True), to, force=force)


@pytest.fixture(scope="module")
def pixels(offline):
    return np.stack([offline.preprocess.centre(blotch(c, k, 90)) for k, c in enumerate(COLOURS.values())])


@pytest.fixture(scope="module")
def models(offline, pixels):
    """One of each kind of fitted model, with numbers out of the air."""
    text, head, scale = offline.text(list(COLOURS), [TEMPLATE]), offline.head, offline.scale
    keys = unit_rows(head(offline.encode(pixels)))
    tuned = Head(head.weight + 0.01 * RNG.normal(size=head.weight.shape))
    return {
        "zero_shot": Projected(head, text, scale),
        "prolip": Projected(tuned, text, scale, tuned=True),
        "rla": Projected(head, text, scale, adapter=np.eye(512) + 0.1 * RNG.normal(size=(512, 512))),
        "linear": LinearClassifier(head, text, RNG.normal(size=(3, 512)), RNG.normal(size=3)),
        "linear, before": LinearClassifier(head, text, RNG.normal(size=(3, 1280)), np.zeros(3), "pre"),
        "cache": CacheClassifier(head, text, scale, keys, np.array([0, 1, 2]), 2.0, 5.5),
        "text": TextProjected(
            head, text, scale, RNG.normal(size=(512, 512)), None, RNG.normal(size=(3, 512))
        ),
    }


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    "kind",
    ["zero_shot", "prolip", "rla", "linear", "linear, before", "text"],
)
def test_onnx_runtime_gives_the_same(offline, pixels, models, tmp_path, kind):
    fitted = models[kind]
    export(tmp_path / "out", offline, fitted, CONFIG, ["onnx"])
    x = offline.encode(pixels)
    expected = softmax(fitted.logits(x) / 1.25)
    classifier = session(tmp_path / "out" / "classifier_batch.onnx")
    best, found, rejected = classifier.run(None, {"pixels": pixels})
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert best.tolist() == expected.argmax(axis=1).tolist()
    assert not rejected.any()
    about = classifier.get_modelmeta().custom_metadata_map
    assert json.loads(about["labels"]) == list(COLOURS)
    assert about["version"] == "0"
    assert json.loads(about["pixels"])["size"] == 224
    assert about["base_model"] == "offline"
    assert (tmp_path / "out" / "image.onnx").exists() == isinstance(fitted, Projected)
    if isinstance(fitted, Projected):
        found = session(tmp_path / "out" / "image.onnx").run(None, {"pixels": pixels[:1]})[0]
        np.testing.assert_allclose(found, fitted.embed(x[:1]), atol=1e-4)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Images of many sizes, shapes and kinds, in one folder per colour."""
    root, rng = tmp_path_factory.mktemp("photos"), random.Random(0)
    for i in range(24):
        name = list(COLOURS)[i % 3]
        image = blotch(COLOURS[name], i, 1200)
        size = [(1200, 900), (300, 1100), (1000, 120), (224, 224), (37, 51), (700, 1200), (1, 30), (640, 480)]
        image = image.crop((0, 0, *size[i % 8]))
        exif = Image.Exif()
        exif[0x0112] = rng.randint(1, 8)
        (root / name).mkdir(exist_ok=True)
        image.convert("L" if i % 5 == 0 else "RGB").save(
            root / name / f"{i}.{'jpg' if i % 2 else 'png'}", exif=exif
        )
    return root


def test_the_classifier_takes_images_as_they_are(photos, tmp_path):
    training = {name: [blotch(colour, k) for k in range(4)] for name, colour in COLOURS.items()}
    negatives = {"none of these": [blotch((120, 40, 150), k) for k in range(4)]}
    clf = FewShotClassifier("offline", store=False).fit(training | negatives)
    clf.export(tmp_path / "out", to="onnx")
    classifier = session(tmp_path / "out" / "classifier.onnx")
    paths = sorted(photos.rglob("*.*"))
    others = [noise(1, (320, 400)), *(images[0] for images in training.values())]
    raw = [np.asarray(ImageOps.exif_transpose(Image.open(path)).convert("RGB")) for path in paths]
    raw += [np.asarray(image) for image in others]
    found = [classifier.run(None, {"image": pixels}) for pixels in raw]
    images = [*map(str, paths), *others]
    np.testing.assert_allclose([row[1] for row in found], clf.predict_proba(images), atol=5e-3)
    labels = json.loads(classifier.get_modelmeta().custom_metadata_map["labels"])
    assert [labels[row[0]] for row in found] == list(clf.predict(images))
    rejected = [label is None for label in clf.predict(images, reject=True)]
    assert [bool(row[2]) for row in found] == rejected
    assert 0 < sum(rejected) < len(rejected)


@pytest.mark.every_environment
def test_no_torch_is_needed(offline, models, tmp_path, monkeypatch):
    for name in ("torch", "onnxscript"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    assert "classifier.onnx" in export(tmp_path / "out", offline, models["prolip"], CONFIG, ["onnx"])


def test_a_graph_that_computes_something_else_is_not_kept(offline, models, tmp_path, monkeypatch):
    wrong = models["zero_shot"]
    monkeypatch.setattr(type(wrong), "to_onnx", lambda self, graph, x: models["linear"].to_onnx(graph, x))
    with pytest.raises(ModelError):
        export(tmp_path / "out", offline, wrong, CONFIG, ["onnx"])
    monkeypatch.setattr(type(wrong), "to_onnx", lambda self, graph, x: graph.node("NoSuchThing", x))
    with pytest.raises(ModelError):
        export(tmp_path / "out", offline, wrong, CONFIG, ["onnx"])
    assert list(tmp_path.iterdir()) == []


def test_a_method_without_a_graph_is_refused(offline, models, tmp_path):
    with pytest.raises(UsageError):
        export(tmp_path / "out", offline, models["cache"], CONFIG, ["onnx"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["hf", "open_clip"])
def test_a_format_that_a_model_cannot_have_is_refused_before_anything_is_written(
    prolip, colour_model, tmp_path, to
):
    colour_model.save(tmp_path / "m")
    code, out, err = prolip("export", tmp_path / "m", "--to", to, "-o", tmp_path / "out")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that it leaves open
def test_the_program_on_the_card_predicts_what_predict_does(tmp_path, monkeypatch):
    training = {name: [blotch(colour, k) for k in range(4)] for name, colour in COLOURS.items()}
    clf = FewShotClassifier("offline", store=False).fit(training)
    clf.export(tmp_path / "out", to="onnx")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"With ONNX Runtime:\n\n```python\n(.*?)```", card, re.DOTALL)
    red = blotch(COLOURS["red"], 7, 300)
    faded, turned = red.copy(), Image.Exif()
    faded.putalpha(Image.linear_gradient("L").resize(red.size))
    turned[0x0112] = 6
    deep = Image.fromarray(np.asarray(red.convert("L")).astype(np.uint16) * 200)
    kinds = {
        "deep.png": (deep, {}), "faded.png": (faded, {}), "turned.jpg": (red, {"exif": turned}),
        "cmyk.jpg": (red.convert("CMYK"), {}), "palette.gif": (red.convert("P"), {}),
    }  # fmt: skip
    monkeypatch.chdir(tmp_path / "out")
    for name, (image, options) in kinds.items():
        image.save(name, **options)
        found = {}
        exec(program.replace("image.jpg", name), found)
        np.testing.assert_allclose(found["probabilities"], clf.predict_proba([name])[0], atol=0.01)
