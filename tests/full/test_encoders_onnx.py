"""Models as ONNX graphs, in the layouts of the hub, beside the libraries that they were written from."""

import shutil

import numpy as np
import pytest
import torch

import onnx_models as models
from closeness import assert_close
from hub_server import point_to, serving
from prolip.core import ModelError, ProlipError, UsageError
from prolip.core.arrays import unit_rows
from prolip.encoders import MODELS, load
from prolip.encoders.pretrained import PretrainedModel
from prolip.export.formats import FORMATS
from tiny_models import TOWERS, as_pixels, colours, pictures, random_model

pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch's exporter
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
PROMPTS = ["a photo of a cat", "a dog", "cat"]


@pytest.fixture(scope="module", params=["clip", "siglip"])
def folder(request, tmp_path_factory):
    return models.write_transformers_js(tmp_path_factory.mktemp(request.param), request.param)


def embeddings(encoder):
    pixels = as_pixels(encoder, pictures())
    return encoder.head(encoder.encode(pixels)), encoder.text_head(encoder.encode_text(PROMPTS))


def cosines(found, expected):
    return min((unit_rows(a) * unit_rows(b)).sum(axis=1).min() for a, b in zip(found, expected, strict=True))


def test_features_and_heads_are_those_of_transformers(folder):
    encoder, library = load(f"onnx:{folder}", "cpu"), load(f"hf:{folder}", "cpu")
    assert encoder.black_box_reason is None
    assert encoder.preprocess == library.preprocess
    assert_close(encoder.head.weight, library.head.weight)
    assert encoder.head.residual == library.head.residual
    pixels = np.random.default_rng(1).integers(0, 256, (7, 32, 32, 3), np.uint8)
    assert_close(encoder.encode(pixels), library.encode(pixels), atol=1e-4, rtol=1e-4)
    assert cosines(embeddings(encoder), embeddings(library)) > 0.99999


@pytest.fixture
def int8(folder, tmp_path):
    """A copy of the folder with graphs in int8, too."""
    copy = shutil.copytree(folder, tmp_path / "model")
    for tower in ("vision", "text"):
        models.to_int8(copy / "onnx" / f"{tower}_model.onnx", copy / "onnx" / f"{tower}_model_int8.onnx")
    return copy


def test_int8_is_close(int8):
    copy = int8
    expected, encoder = load(f"onnx:{copy}", "cpu"), load(f"onnx:{copy}@int8", "cpu")
    assert encoder.black_box_reason is None
    assert encoder.fingerprint != expected.fingerprint
    assert encoder.name.endswith("@int8")
    assert cosines(embeddings(encoder), embeddings(expected)) > 0.97
    pixels = as_pixels(encoder, pictures())
    alone = np.concatenate([encoder.encode(pixels[i : i + 1]) for i in range(len(pixels))])
    assert_close(encoder.encode(pixels), alone, atol=1e-5, rtol=1e-5)
    assert_close(encoder.encode_text(PROMPTS)[1:2], encoder.encode_text(PROMPTS[1:2]), atol=1e-2, rtol=1e-2)
    assert_close(encoder.head.weight, expected.head.weight, atol=0.02)


@pytest.mark.parametrize("tower", ["vit", "resnet"])
def test_towers_of_open_clip(tmp_path, tower):
    """Those of a ResNet, whose projection is applied to every place of the image, are a black box."""
    import open_clip

    model = random_model(TOWERS[tower])
    models.write_open_clip_pair(tmp_path, model, context=24)
    encoder = load(f"onnx:{tmp_path}", "cpu")
    assert (encoder.black_box_reason is None) == (tower == "vit")
    assert encoder.head.dim == 20
    pixels = as_pixels(encoder, pictures())
    tokens = open_clip.tokenizer.SimpleTokenizer(context_length=24)(PROMPTS)
    with torch.no_grad():
        expected = (
            model.encode_image(torch.from_numpy(encoder.preprocess.normalise_arrays(pixels))).numpy(),
            model.encode_text(tokens).numpy(),
        )
    assert cosines(embeddings(encoder), expected) > 0.9999


class Squared(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x.flatten(1)[:, :6])


def test_a_graph_without_a_linear_map_is_a_black_box(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "model")
    example = torch.rand(2, 3, 32, 32)
    models.export(Squared(), example, copy / "onnx" / "vision_model.onnx", ("pixel_values", "image_embeds"))
    encoder = load(f"onnx:{copy}", "cpu")
    assert encoder.black_box_reason is not None
    assert_close(encoder.head.weight, np.eye(6))


def test_an_exported_graph_answers_as_the_model_does(folder, tmp_path):
    import onnx
    import onnxruntime

    import prolip

    pictures, y = colours(4)
    clf = prolip.FewShotClassifier(f"onnx:{folder}", store=False).fit(
        pictures, np.array(["a", "cat", "dog"])[y]
    )
    clf.export(tmp_path / "out", to="onnx", all_graphs=True)
    onnx.checker.check_model(str(tmp_path / "out" / "classifier.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "classifier_batch.onnx")
    encoder = clf.model_.encoder
    pixels = as_pixels(encoder, pictures)
    (probabilities,) = session.run(["probabilities"], {"pixels": pixels})
    assert_close(probabilities, clf.predict_proba(pictures), atol=1e-5)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "classifier.onnx")
    found = [session.run(["probabilities"], {"image": np.asarray(picture)})[0] for picture in pictures]
    assert_close(np.stack(found), clf.predict_proba(pictures), atol=5e-3)


CLASSES = ["a", "cat", "dog"]
TEMPLATE = "a photo of a {}"


def fitted_on(name, **options):
    import prolip

    pictures, y = colours(4)
    clf = prolip.FewShotClassifier(name, templates=[TEMPLATE], store=False, **options)
    return clf.fit(pictures, np.array(CLASSES)[y]), pictures


def probabilities(model, values, tokens):
    """Of a model of transformers, from its own logits."""
    with torch.no_grad():
        logits = model(input_ids=tokens, pixel_values=values).logits_per_image
    return logits.softmax(dim=1).numpy()


def test_a_checkpoint_in_transformers_answers_as_the_model_does(folder, tmp_path):
    import transformers

    clf, pictures = fitted_on(f"onnx:{folder}")
    out = tmp_path / "hf"
    clf.export(out, to="hf", weights=f"hf:{folder}")
    model = transformers.AutoModel.from_pretrained(out).eval()
    prompts = [TEMPLATE.format(name) for name in clf.classes_]
    length = model.config.text_config.max_position_embeddings
    tokens = transformers.AutoTokenizer.from_pretrained(out)(
        prompts, padding="max_length", max_length=length, return_tensors="pt"
    )["input_ids"]
    processor = transformers.AutoImageProcessor.from_pretrained(out, backend="pil")
    values = processor(pictures, return_tensors="pt")["pixel_values"]
    assert_close(np.log(probabilities(model, values, tokens)), np.log(clf.predict_proba(pictures)), atol=1e-3)
    assert ("sigmoid" in (out / "README.md").read_text()) == (model.config.model_type == "siglip")


def test_a_checkpoint_of_other_weights_is_refused(folder, int8, tmp_path):
    copy, weights, out = int8, f"hf:{folder}", tmp_path / "out"
    with pytest.raises(UsageError):
        fitted_on(f"onnx:{copy}@int8")[0].export(out, to="hf", weights=weights)
    clf, _ = fitted_on(f"onnx:{copy}")
    for given in (None, "offline", f"onnx:{folder}"):
        with pytest.raises(UsageError):
            clf.export(out, to="hf", weights=given)
    import transformers

    model = transformers.AutoModel.from_pretrained(folder)
    with torch.no_grad():  # the same heads, another tower
        next(iter(model.vision_model.parameters())).mul_(1.1)
    model.save_pretrained(copy)
    with pytest.raises(ModelError):
        clf.export(out, to="hf", weights=f"hf:{copy}")
    type(model)(model.config).save_pretrained(copy)
    with pytest.raises(ModelError):
        clf.export(out, to="hf", weights=f"hf:{copy}")
    assert not out.exists()


def test_original_weights_are_downloaded_only_if_they_are_named(tmp_path, monkeypatch):
    folder = models.write_transformers_js(tmp_path / "hub" / "owner" / "original")
    shutil.copytree(folder, folder.with_name("graphs"))
    known = PretrainedModel("Tiny", "owner/graphs", "fp32", 1, "MIT", original="hf:owner/original")
    monkeypatch.setitem(MODELS, "tiny", known)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving(tmp_path / "hub") as hub:
        point_to(hub.address, monkeypatch)
        clf, _ = fitted_on("tiny", download=True)
        hub.requests.clear()
        with pytest.raises(ModelError, match="hf:owner/original"):
            clf.export(tmp_path / "out", to="hf")
        assert hub.requests == []
        assert FORMATS["hf"].why_not(clf.fitted_, clf.model_.encoder, download=False)
        clf.export(tmp_path / "out", to="hf", weights="hf:owner/original")
    clf.export(tmp_path / "again", to="hf")  # they are here now
    assert FORMATS["hf"].why_not(clf.fitted_, clf.model_.encoder, download=False) is None


def test_damaged_files_are_errors_of_ours(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "model")
    path = copy / "onnx" / "vision_model.onnx"
    content = path.read_bytes()
    cuts = [content[:size] for size in range(10, len(content), len(content) // 20)]
    for damaged in (b"", b"not a graph", b"\x3a\xff\xff\xff\xff\x0f", *cuts):
        path.write_bytes(damaged)
        with pytest.raises(ProlipError):
            load(f"onnx:{copy}", "cpu")


def test_external_tensors_stay_in_the_folder(folder, tmp_path):
    import onnx

    copy = shutil.copytree(folder, tmp_path / "model")
    path = copy / "onnx" / "vision_model.onnx"
    whole = load(f"onnx:{copy}", "cpu")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    apart = load(f"onnx:{copy}", "cpu")
    assert_close(embeddings(apart)[0], embeddings(whole)[0], atol=1e-5, rtol=1e-5)
    content = path.read_bytes().replace(b"weights.bin", b"../eights.x")
    path.write_bytes(content)
    with pytest.raises(ProlipError):
        load(f"onnx:{copy}", "cpu")
