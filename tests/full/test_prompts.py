"""Prompt tuning, on towers small enough to train in a moment."""

import dataclasses

import numpy as np
import pytest
import torch

from closeness import assert_close
from prolip import methods
from prolip.core import InputError, Task, Text, UsageError
from prolip.encoders import load
from prolip.research.towers.prompt_tuning import Layout, phrase_embedding
from tiny_models import TOWERS, tower_task, write_clip, write_folder

M, DE, K, D = 4, 24, 3, 20  # context words, their width, classes, embedding
FAST = {"epochs": 12, "batch_size": 12}


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    root = tmp_path_factory.mktemp("towers")
    loaded = {
        name: load(f"open_clip:local-dir:{write_folder(root / name, config)}", "cpu")
        for name, config in TOWERS.items()
    }
    loaded["hf"] = load(f"hf:{write_clip(root / 'hf')}", "cpu")
    return loaded


def state(encoder):
    return {name: tensor.clone() for name, tensor in encoder.towers().model.state_dict().items()}


def same(before, after):
    return before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


# What each trains, in the paper's formulas; MaPLe's map goes to the 32 columns of the vision transformer.
SIZES = [
    ("coop", {"contexts": M}, M * DE),
    ("kgcoop", {"lr": 0.01}, M * DE),
    ("prograd", {"contexts": 6}, 6 * DE),
    ("plot", {"contexts": M, "prompts": 2}, 2 * M * DE),
    ("cocoop", {"reduction": 4}, M * DE + (D + 1) * (D // 4) + (D // 4 + 1) * DE),
    ("maple", {"depth": 1}, 2 * DE + (DE + 1) * 32),
    ("maple", {"depth": 3}, 3 * (2 * DE + (DE + 1) * 32)),
    ("maple", {"depth": 3, "shared": True}, 3 * 2 * DE + (DE + 1) * 32),
]


@pytest.mark.parametrize(
    ("kind", "name", "options", "size"),
    [(kind, *case) for kind in ("vit", "resnet") for case in SIZES if (kind, case[0]) != ("resnet", "maple")],
)
def test_prompts_learn_and_nothing_else_changes(encoders, kind, name, options, size):
    encoder = encoders[kind]
    task, pixels = tower_task(encoder)
    before = state(encoder)
    method = methods.create(name, **{**FAST, "lr": 0.05, **options})
    fitted = method.fit(task)
    assert fitted.report["loss"] < fitted.report["start_loss"]
    assert fitted.report["parameters"] == size
    assert same(before, state(encoder))
    x = fitted.encoder_for(encoder).encode(pixels)
    assert isinstance(fitted.logits(x), np.ndarray)
    assert fitted.logits(x).shape == (12, K)
    assert_close(fitted.proba(x).sum(axis=1), np.ones(12))


@pytest.mark.parametrize("kind", ["vit", "resnet", "hf"])
def test_coop_with_no_steps_is_zero_shot_with_the_same_words(encoders, kind):
    encoder = encoders[kind]
    words = "a" if kind == "hf" else "a photo of a"  # its tokenizer knows letters only, and few fit
    task, _ = tower_task(encoder, template=f"{words} {{}}.")
    zero_shot = methods.create("zero_shot").fit(task)
    for name in ("coop", "kgcoop"):
        fitted = methods.create(name, init=words, epochs=0).fit(task)
        assert_close(fitted.logits(task.x[0]), zero_shot.logits(task.x[0]), atol=1e-4, rtol=1e-4)


def test_a_class_name_may_be_a_letter_that_would_mark_a_slot(encoders):
    encoder = encoders["vit"]
    towers = encoder.towers()
    names = ["x", "x ray", "q"]
    prompts = Layout(2).prompts(encoder, names)
    words = phrase_embedding(encoder, towers, "a b", "x")
    expected = encoder.text(names, ["a b {}."]).rows
    assert_close(prompts.embed(words), expected, atol=1e-5, rtol=1e-4)


def test_shorter_text_runs_change_nothing(encoders):
    """The tower is run only to the longest prompt; the library itself runs it over all the padding."""
    encoder = encoders["vit"]
    prompts = ["a photo of a cat.", "a"]
    expected = encoder.model.encode_text(encoder.tokens(prompts)["input_ids"])
    assert_close(encoder.towers().embed_text(encoder.tokens(prompts)), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["coop", "kgcoop", "prograd", "cocoop", "plot"])
def test_the_best_epoch_on_a_validation_set_is_kept(encoders, name):
    """Where the labels of the validation set are those of the start, training can only do harm."""
    task, _ = tower_task(encoders["vit"])
    options = {"lr": 0.5, "epochs": 4, "batch_size": 12}
    method = methods.create(name, **options)
    first = methods.create(name, **{**options, "epochs": 1, "lr": 1e-5}).fit(task)
    reader = first.encoder_for(encoders["vit"])
    seen = reader.encode(np.stack([reader.preprocess.centre(picture) for picture in task.images]))
    held = dataclasses.replace(task, y=first.predict(seen))
    fitted = method.fit(task, validation=held)
    assert fitted.report["best_epoch"] == 1  # of equals the first: its rate is 1e-5
    assert fitted.report["validation_accuracy"] == 1
    assert np.allclose(fitted.logits(seen), first.logits(seen), atol=0.05)
    assert not np.allclose(method.fit(task).logits(seen), first.logits(seen), atol=0.05)


def test_a_validation_set_for_the_image_tower_needs_its_images(encoders):
    task, _ = tower_task(encoders["vit"])
    alone = Task(task.x, task.y, task.text, task.head, task.scale)
    with pytest.raises(InputError):
        methods.create("plot", epochs=1).fit(task, validation=alone)


def test_wrong_use_raises(encoders):
    task, _ = tower_task(encoders["vit"])
    with pytest.raises(UsageError):
        methods.create("coop").fit(Task(task.x, task.y, task.text, task.head))
    with pytest.raises(InputError):
        methods.create("coop", contexts=40, epochs=1).fit(task)
    with pytest.raises(UsageError):
        methods.create("coop", contexts=0)
    with pytest.raises(UsageError):
        methods.create("maple", depth=9).fit(task)
    with pytest.raises(InputError):
        methods.create("coop", contexts=2, epochs=0).fit(task).with_text(Text(np.eye(20)[:2]))
