"""Adapted models in other people's libraries: what they compute is what was fitted."""

import errno
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from closeness import assert_close
from pictures import blotch
from prolip import methods
from prolip.core import ModelError, Projected, Task, UsageError
from prolip.core.arrays import softmax, unit_rows
from prolip.encoders import load
from prolip.export.card import model_card
from prolip.export.formats import Export
from prolip.export.formats import export as write
from prolip.export.onnx_torch import traced_tower
from prolip.io.environment import MissingPackageError
from prolip.io.writing import WriteError
from tiny_models import OPEN_CLIP, normalised, write_clip, write_folder, write_siglip

open_clip = pytest.importorskip("open_clip")
transformers = pytest.importorskip("transformers")

TEMPLATE = "a photo of a {}."
CLASSES = ["cat", "dog"]
PROMPTS = [TEMPLATE.format(name) for name in CLASSES]


def export(path, encoder, fitted, config, to, force=False):
    """Write a model in some formats, with all of its graphs."""
    return write(path, Export(encoder, fitted, config, all_graphs=True), to, force=force)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Encoders by name, made when they are first asked for."""
    root, made = tmp_path_factory.mktemp("models"), {}

    def get(name):
        if name not in made:
            torch.manual_seed(0)
            if name == "hf-clip":
                source = f"hf:{write_clip(root / name, size={'shortest_edge': 32})}"
            elif name == "hf-siglip":
                source = f"hf:{write_siglip(root / name)}"
            else:
                source = f"open_clip:local-dir:{write_folder(root / name, OPEN_CLIP[name])}"
            made[name] = load(source, "cpu")
        return made[name]

    return get


def pixels_for(encoder, count=4):
    pictures = [blotch((60 * k, 200 - 50 * k, 90), k, 70) for k in range(count)]
    return np.stack([encoder.preprocess.centre(picture) for picture in pictures])


def fit(encoder, method="prolip"):
    pixels = pixels_for(encoder)
    text = encoder.text(CLASSES, [TEMPLATE])
    task = Task(encoder.encode(pixels), [0, 0, 1, 1], text, encoder.head, encoder.scale)
    # Images of noise embed almost alike in a random tower: a weak pull would blow their rounding up.
    options = {"lam": 1.0} if "lam" in methods.options(method) else {}
    return methods.create(method, **options).fit(task), pixels


CONFIG = {
    "prolip": "0", "model": "open_clip:test", "method": "prolip", "kind": "projected", "classes": CLASSES,
    "templates": [TEMPLATE], "temperature": 1.25, "fingerprint": "f", "lam": 1e-3,
    "fit": {"images": 4, "shots": 2.0},
    "held_out": {
        "images": 4, "accuracy": 0.75, "zero_shot_accuracy": 0.5, "per_class": [1.0, 0.5],
        "calibration_error": 0.1, "calibration_error_before": 0.3,
    },
}  # fmt: skip


def open_clip_answers(folder, encoder, pixels):
    """Unit embeddings and the scale, by open_clip's own code alone."""
    model = open_clip.create_model_from_pretrained(f"local-dir:{folder}", return_transform=False).eval()
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    with torch.no_grad():
        image = model.encode_image(normalised(encoder, pixels), normalize=True)
        text = model.encode_text(tokenizer(PROMPTS), normalize=True)
    return image.numpy(), text.numpy(), float(model.logit_scale.detach().exp())


def hf_answers(folder, encoder, pixels):
    """Unit embeddings and the scale, by transformers' own code alone."""
    siglip = json.loads((folder / "config.json").read_text())["model_type"] == "siglip"
    kind = transformers.SiglipModel if siglip else transformers.CLIPModel
    model = kind.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    padding = {"padding": "max_length", "max_length": 8} if siglip else {"padding": True}
    tokens = tokenizer(PROMPTS, truncation=True, return_tensors="pt", **padding)["input_ids"]
    with torch.no_grad():
        image = model.get_image_features(pixel_values=normalised(encoder, pixels)).pooler_output
        text = model.get_text_features(input_ids=tokens).pooler_output
    return (
        normalize(image, dim=1).numpy(),
        normalize(text, dim=1).numpy(),
        float(model.logit_scale.detach().exp()),
    )


@pytest.mark.parametrize(
    ("name", "method", "to"),
    [
        ("clip-vit", "prolip", "open_clip"),
        ("clip-vit", "rla", "open_clip"),
        ("clip-vit", "prolip_text", "open_clip"),
        ("clip-resnet", "prolip", "open_clip"),
        ("clip-resnet", "rla", "open_clip"),
        ("timm-linear", "prolip", "open_clip"),
        ("siglip", "prolip", "open_clip"),
        ("hf-clip", "prolip", "hf"),
        ("hf-siglip", "prolip", "hf"),
    ],
)
def test_other_libraries_give_the_adapted_embeddings(model, tmp_path, name, method, to):
    encoder = model(name)
    fitted, pixels = fit(encoder, method)
    export(tmp_path / "out", encoder, fitted, CONFIG, [to])
    answers = open_clip_answers if to == "open_clip" else hf_answers
    image, text, scale = answers(tmp_path / "out", encoder, pixels)
    probabilities = softmax(fitted.logits(encoder.encode(pixels)) / CONFIG["temperature"])
    assert_close(softmax(scale * image @ text.T), probabilities, atol=1e-5, rtol=1e-4)
    if isinstance(fitted, Projected):
        assert_close(image, fitted.embed(encoder.encode(pixels)), atol=1e-4, rtol=0)
    zero_shot = unit_rows(encoder.head(encoder.encode(pixels))) @ encoder.text(CLASSES, [TEMPLATE]).rows.T
    assert np.abs(image @ text.T - zero_shot).max() > 1e-3  # the fit did move something


def test_the_zero_shot_pipeline_gives_our_probabilities(model, tmp_path):
    encoder = model("hf-clip")
    fitted, _ = fit(encoder)
    export(tmp_path / "out", encoder, fitted, CONFIG, ["hf"])
    picture = blotch((200, 60, 60), 5, 32)
    processor = transformers.CLIPImageProcessorPil.from_pretrained(tmp_path / "out")
    classify = transformers.pipeline(
        "zero-shot-image-classification", model=str(tmp_path / "out"), image_processor=processor
    )
    found = {
        a["label"]: a["score"]
        for a in classify(picture, candidate_labels=CLASSES, hypothesis_template=TEMPLATE)
    }
    x = encoder.encode(encoder.preprocess.centre(picture)[None])
    ours = softmax(fitted.logits(x) / CONFIG["temperature"])[0].tolist()
    assert [found[name] for name in CLASSES] == pytest.approx(ours, abs=1e-4)


def test_what_does_not_fold_says_so_and_offers_onnx(model, tmp_path):
    for name, method in [("siglip", "rla"), ("timm-bare", "prolip")]:
        fitted, _ = fit(model(name), method)
        with pytest.raises(UsageError, match="onnx"):
            export(tmp_path / "out", model(name), fitted, CONFIG, ["open_clip"])
    probe, _ = fit(model("clip-vit"), "task_res")
    with pytest.raises(UsageError, match="onnx"):
        export(tmp_path / "out", model("clip-vit"), probe, CONFIG, ["open_clip"])


@pytest.mark.parametrize(
    ("name", "method"), [("clip-vit", "prolip"), ("hf-siglip", "rla"), ("hf-clip", "task_res")]
)
def test_onnx_runtime_gives_the_same(model, tmp_path, name, method):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    encoder = model(name)
    fitted, pixels = fit(encoder, method)
    export(tmp_path / "out", encoder, fitted, CONFIG, ["onnx"])

    def run(file, output, inputs):
        return onnxruntime.InferenceSession(tmp_path / "out" / file).run([output], inputs)[0]

    x, both = encoder.encode(pixels), {"pixels": pixels}
    expected = softmax(fitted.logits(x) / CONFIG["temperature"])
    assert_close(run("classifier_batch.onnx", "probabilities", both), expected, atol=1e-4, rtol=0)
    picture = np.random.default_rng(3).integers(0, 256, (90, 150, 3), np.uint8)
    x_picture = encoder.encode(encoder.preprocess.centre(Image.fromarray(picture))[None])
    expected = softmax(fitted.logits(x_picture) / CONFIG["temperature"])[0]
    assert_close(run("classifier.onnx", "probabilities", {"image": picture}), expected, atol=5e-3, rtol=0)
    if isinstance(fitted, Projected):  # others have no embedding of their own
        assert_close(run("image.onnx", "image_embeds", both), fitted.embed(x), atol=1e-4, rtol=0)


def test_a_tower_that_cannot_be_traced_says_so_in_one_line():
    def broken(pixels):
        raise RuntimeError("this tower\nhas a story to tell")

    with pytest.raises(ModelError) as outcome:
        traced_tower(SimpleNamespace(trace=broken, device="cpu"), np.zeros((2, 32, 32, 3), np.uint8))
    assert str(outcome.value) == "the tower cannot be traced: this tower"


@pytest.mark.parametrize(("to", "missing"), [("onnx", "onnxscript"), ("hf", "transformers")])
def test_libraries_that_are_not_installed(model, tmp_path, monkeypatch, to, missing):
    encoder = model("hf-clip" if to == "hf" else "clip-vit")
    fitted, _ = fit(encoder, "zero_shot")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingPackageError, match=missing):
        export(tmp_path / "out", encoder, fitted, CONFIG, [to])
    assert not (tmp_path / "out").exists()


def test_folders_with_files_are_kept_unless_forced(model, tmp_path):
    encoder = model("clip-vit")
    fitted, _ = fit(encoder)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError):
        export(tmp_path, encoder, fitted, CONFIG, ["onnx"])
    export(tmp_path, encoder, fitted, CONFIG, ["onnx"], force=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "classifier.onnx").is_file()


@pytest.mark.parametrize(
    ("to", "writer"),
    [
        ("open_clip", "prolip.export.formats.write_bytes"),  # the card, written last
        ("open_clip", "safetensors.torch.save_file"),
    ],
)
def test_a_full_disk_leaves_nothing(model, tmp_path, monkeypatch, to, writer):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    encoder = model("clip-vit")
    fitted, _ = fit(encoder)
    monkeypatch.setattr(writer, full)
    with pytest.raises(WriteError):
        export(tmp_path / "out", encoder, fitted, CONFIG, [to])
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_computes_something_else_is_not_kept(model, tmp_path, monkeypatch):
    encoder = model("clip-vit")
    fitted, _ = fit(encoder)
    monkeypatch.setattr(
        "prolip.export.formats.load_checkpoint", lambda *_: model("clip-vit")
    )  # not the adapted one
    with pytest.raises(ModelError):
        export(tmp_path / "out", encoder, fitted, CONFIG, ["open_clip"])
    assert not (tmp_path / "out").exists()


def test_the_card_is_for_a_person(model, tmp_path):
    encoder = model("clip-vit")
    fitted, _ = fit(encoder)
    export(tmp_path / "pets", encoder, fitted, CONFIG, ["open_clip"])
    card = (tmp_path / "pets" / "README.md").read_text()
    for wanted in (
        "# pets", "`cat`, `dog`", "| before (zero-shot) | 50.0 % |", "| this model | **75.0 %** |",
        "| dog | 50.0 % |",
        "30.0 % at temperature 1, before calibration, and 10.0 % after",
        "With open_clip:", "lam = 0.001",
    ):  # fmt: skip
        assert wanted in card
    assert "onnx" not in card.lower()
    blocks = card.split("```python\n")[1:]
    for block in blocks:
        compile(block.split("```")[0], "card", "exec")


def test_the_card_tells_when_test_pictures_were_not_new():
    measured = {"images": 9, "zero_shot_accuracy": 0.5, "accuracy": 1.0, "per_class": [1.0, 1.0]}
    for known, outcome in ((0, "that were not used in the fit"), (4, "of which 4 were used in the fit")):
        card = model_card(
            {**CONFIG, "evaluation": {**measured, "duplicates": known}}, {"prolip.json"}, "pets"
        )
        assert outcome in card
