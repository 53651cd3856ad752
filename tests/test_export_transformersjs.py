"""Folders for transformers.js: the graphs that its pipelines load give what the model does."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from graph_models import SIZE, WORDS, write_graphs
from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.core import ModelError
from prolip.core.arrays import unit_rows

TEMPLATE = "a photo of {}"
CLASSES = ("red", "green", "blue")


@pytest.fixture
def base(tmp_path):
    folder = write_graphs(tmp_path / "base")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer"}))
    return folder


@pytest.fixture(params=["anchored", "prolip_text"])
def model(base, request):
    """A model of either projection."""
    pictures = [blotch(COLOURS[name], seed) for name in CLASSES for seed in range(4)]
    labels = [name for name in CLASSES for _ in range(4)]
    clf = FewShotClassifier(f"onnx:{base}", method=request.param, templates=[TEMPLATE], store=False)
    return clf.fit(pictures, labels)


def run(path, **inputs):
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def test_the_graphs_give_the_logits_of_the_model(model, base):
    model.export("exported", to="transformersjs")
    encoder, onnx = model.model_.encoder, Path("exported/onnx")
    pixels = np.stack([encoder.preprocess.centre(blotch(COLOURS[name], 9)) for name in ("red", "blue")])
    values = np.stack([np.asarray(each, np.float32).transpose(2, 0, 1) for each in pixels]) / 255
    mean, std = (
        np.array(each, np.float32)[:, None, None]
        for each in (encoder.preprocess.mean, encoder.preprocess.std)
    )
    values = ((values - mean) / std).astype(np.float32)
    assert values.shape == (2, 3, SIZE, SIZE)
    tokens = np.array(
        [[WORDS.index(word) for word in TEMPLATE.format(name).split()] for name in model.classes_]
    )
    expected = model.fitted_.logits(encoder.encode(pixels)) / model.confidence_.temperature
    together = run(onnx / "model.onnx", input_ids=tokens, pixel_values=values)
    np.testing.assert_allclose(together["logits_per_image"], expected, atol=1e-4)
    if model.method == "anchored":  # which leaves the text rows as they are
        scaled = together["image_embeds"] * model.fitted_.scale / model.confidence_.temperature
        np.testing.assert_allclose(scaled @ model.fitted_.text.rows.T, expected, atol=1e-4)
    np.testing.assert_array_equal(together["logits_per_text"], together["logits_per_image"].T)
    images = run(onnx / "vision_model.onnx", pixel_values=values)["image_embeds"]
    texts = run(onnx / "text_model.onnx", input_ids=tokens)["text_embeds"]
    np.testing.assert_allclose(unit_rows(images), together["image_embeds"], atol=1e-6)
    np.testing.assert_allclose(unit_rows(texts), together["text_embeds"], atol=1e-6)


def test_the_folder_is_what_the_library_loads(model, base, prolip):
    model.save("model")
    code, out, err = prolip("export", "model", "--to", "transformersjs", "-o", "exported", "--json")
    assert code == 0, err
    graphs = {f"onnx/{name}.onnx" for name in ("model", "vision_model", "text_model")}
    copied = {"tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"}
    assert set(json.loads(out)["files"]) == graphs | copied | {"config.json", "README.md"}
    for name in copied:
        assert (Path("exported") / name).read_bytes() == (base / name).read_bytes()
    # In a browser the library would look for model_quantized.onnx otherwise.
    config = json.loads(Path("exported/config.json").read_text())
    assert config == {"model_type": "clip", "transformers.js_config": {"dtype": "fp32"}}
    card = Path("exported/README.md").read_text()
    assert "library_name: transformers.js" in card
    assert "from transformers import" not in card
    Path("exported/onnx/mine.txt").write_text("mine")
    code, _, err = prolip("export", "model", "--to", "transformersjs", "-o", "exported", "--force")
    assert code == 0, err
    assert Path("exported/onnx/mine.txt").read_text() == "mine"


@pytest.mark.parametrize("damage", ["no tokenizer_config.json", "SigLIP"])
def test_a_model_without_such_files_is_refused(base, damage, prolip):
    if damage == "SigLIP":
        (base / "config.json").write_text(json.dumps({"model_type": "siglip"}))
        size = {"height": SIZE, "width": SIZE}
        (base / "preprocessor_config.json").write_text(json.dumps({"size": size}))
    else:
        (base / "tokenizer_config.json").unlink()
    pictures = [blotch(COLOURS[name], seed) for name in CLASSES for seed in range(2)]
    labels = [name for name in CLASSES for _ in range(2)]
    clf = FewShotClassifier(f"onnx:{base}", templates=[TEMPLATE], store=False).fit(pictures, labels)
    with pytest.raises(ModelError):
        clf.export("exported", to="transformersjs")
    assert not Path("exported").exists()


def test_other_base_models_and_libraries_are_refused(colour_model, base, prolip):
    colour_model.save("offline")
    code, _, err = prolip("export", "offline", "--to", "transformersjs", "-o", "exported")
    assert code == 1
    assert len(err.strip().splitlines()) == 1
    FewShotClassifier(f"onnx:{base}", store=False).fit(classes=list(CLASSES)).save("zero")
    for library in ("hf", "open_clip"):
        code, _, err = prolip("export", "zero", "--to", library, "-o", "exported")
        assert code == 2  # the original weights are not named
        assert "--weights" in err
        assert len(err.strip().splitlines()) == 1
    assert not Path("exported").exists()
