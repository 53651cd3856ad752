"""Fine-tuning inside the towers: what is trained, and what is left alone."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from closeness import assert_close
from prolip import methods
from prolip.core import ModelError
from prolip.core.arrays import cross_entropy
from prolip.encoders import load
from prolip.encoders.open_clip_torch import open_towers
from prolip.io.environment import MissingPackageError
from prolip.research.catalogue.parameters import TOWER_PARAMETERS, VIT_TOWER
from prolip.research.towers import training
from prolip.research.towers.coupled_prompts import Coupling
from prolip.research.towers.lora_layers import inject
from tiny_models import TOWERS, tower_task, write_clip, write_folder

RATES = {"full": 1e-3, "last_layer": 1e-3, "norm_tuning": 1e-2, "clip_lora": 1e-2}
PAIRS = [
    (kind, name)
    for kind in ("vit", "resnet", "hf")
    for name in RATES
    if (kind, name) != ("resnet", "clip_lora")
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("towers")
    names = {
        kind: f"open_clip:local-dir:{write_folder(root / kind, config)}" for kind, config in TOWERS.items()
    }
    return {**names, "hf": f"hf:{write_clip(root / 'hf')}"}


@pytest.fixture(scope="module")
def encoders(folders):
    return {kind: load(name, "cpu") for kind, name in folders.items()}


def tensors(encoder):
    return {name: tensor.clone() for name, tensor in encoder.towers().model.state_dict().items()}


def expected_names(name, encoder):
    """Which tensors a method may touch, found without its own way of choosing."""
    model = encoder.towers().model
    image = ("visual.", "vision_model.", "visual_projection.")
    norms = {
        f"{owner}.{key}": isinstance(module, nn.BatchNorm2d)
        for owner, module in model.named_modules()
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm))
        for key in ("weight", "bias")
    }
    if name == "norm_tuning":
        return {owner for owner, batch in norms.items() if batch} or set(norms)
    every = {key for key, _ in model.named_parameters()}
    every = {key for key in every if key.startswith(image)}
    if name == "full":
        return every
    last = ("visual.attnpool.", "visual.transformer.resblocks.2.", "vision_model.encoder.layers.1.")
    return {key for key in every if key.startswith(last)}


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_training_lowers_the_loss_and_touches_what_it_should(encoders, kind, name):
    encoder = encoders[kind]
    task, pixels = tower_task(encoder)
    before = tensors(encoder)
    method = methods.create(name, epochs=6, batch_size=4, lr=RATES[name])
    fitted = method.fit(task)
    assert fitted.report["loss"] < fitted.report["start_loss"]

    kept, after = tensors(encoder), tensors(fitted.encoder_for(encoder))
    assert all(torch.equal(before[key], kept[key]) for key in before)
    if name != "clip_lora":  # which adds factors, and changes nothing
        changed = {key for key in before if not torch.equal(before[key], after[key])}
        allowed = expected_names(name, encoder)
        assert changed <= allowed
        assert len(changed) > 0.8 * len(allowed)  # a bias before a softmax has no gradient, and may stay
        assert fitted.report["parameters"] == sum(before[k].numel() for k in allowed)

    adapted = fitted.encoder_for(encoder)
    assert adapted.fingerprint != encoder.fingerprint
    start = methods.create("zero_shot").fit(task)
    after, before = fitted.logits(adapted.encode(pixels)), start.logits(task.x[0])
    assert cross_entropy(after, task.y).mean() < cross_entropy(before, task.y).mean()


def test_counts_are_the_papers():
    """Full, last-layer, norm tuning and ProLIP on RN50; norms, LoRA and MaPLe on ViT-B/16."""
    open_clip = pytest.importorskip("open_clip")

    def towers(name):
        with torch.device("meta"):
            return open_towers(open_clip.CLIP(**open_clip.get_model_config(name)))

    def count(method, towers):
        return size(methods.create(method).choose(towers).values())

    def size(parameters):
        return sum(parameter.numel() for parameter in parameters)

    rn50, vit = towers("RN50"), towers("ViT-B-16")
    coupled = {shared: size(Coupling(2, 9, 512, 768, shared=shared).parameters()) for shared in (False, True)}
    assert (
        TOWER_PARAMETERS
        | {
            "Full fine-tuning, RN50": count("full", rn50),
            "Last layer, RN50": count("last_layer", rn50),
            "BatchNorm, RN50": count("norm_tuning", rn50),
            "LayerNorm, ViT-B/16": count("norm_tuning", vit),
            "MaPLe ‡, ViT-B/16": coupled[False],
            "MaPLe †, ViT-B/16": coupled[True],
        }
        == TOWER_PARAMETERS
    )
    assert size(vit.model.visual.parameters()) == VIT_TOWER
    lora = 2 * 3 * 12 * (2 * 768) + 2 * 3 * 12 * (2 * 512)  # r (in + out), q k v, blocks, both towers
    assert size(inject(vit, 2, 1, 0.0, 0).values()) == lora == 184_320


def test_the_pull_to_the_pretrained_weights_works(encoders):
    task, _ = tower_task(encoders["resnet"])
    before = tensors(encoders["resnet"])

    def moved(lam):
        fitted = methods.create("last_layer", epochs=8, batch_size=4, lr=1e-3, lam=lam).fit(task)
        after = tensors(fitted.encoder_for(encoders["resnet"]))
        return sum(float((after[key] - before[key]).square().sum()) for key in before)

    assert moved(10.0) < 0.5 * moved(0.0)


def test_other_classes_are_read_by_the_text_tower_that_was_trained(encoders):
    task, _ = tower_task(encoders["vit"])
    other = encoders["vit"].text(["cat", "dog"], task.templates)
    for name, same in (("clip_lora", False), ("full", True)):
        fitted = methods.create(name, epochs=4, batch_size=12, lr=0.02).fit(task)
        rows = fitted.with_text(other).text.rows
        assert_close(rows, fitted.encoder_for(None).text(["cat", "dog"], task.templates).rows, atol=1e-5)
        assert np.allclose(rows, other.rows, atol=1e-3) == same


def test_lora_without_peft(encoders, monkeypatch):
    task, _ = tower_task(encoders["vit"])
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingPackageError) as error:
        methods.create("clip_lora").fit(task)
    assert (error.value.package, error.value.extra) == ("peft", "lora")


@pytest.mark.parametrize("name", ["coop", "full"])
def test_training_without_torch(encoders, monkeypatch, name):
    task, _ = tower_task(encoders["vit"])
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError) as error:
        methods.create(name).fit(task)
    assert (error.value.package, error.value.extra) == ("torch", "torch")


def test_divergence_is_told(encoders):
    task, _ = tower_task(encoders["vit"])
    with pytest.raises(training.ProlipError):
        methods.create("coop", contexts=2, epochs=5, batch_size=12, lr=1e36).fit(task)


def test_a_method_says_what_an_encoder_lacks(encoders):
    task, _ = tower_task(encoders["resnet"])
    with pytest.raises(ModelError):
        methods.create("clip_lora").fit(task)
