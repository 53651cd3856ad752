"""Fine-tuning inside the towers: what is trained, what is left alone, and what comes back from disk."""

import dataclasses
import sys

import numpy as np
import pytest
import torch
from torch import nn

import prolip
from closeness import assert_close
from prolip import methods
from prolip.core import ModelError, SavedModelError, UsageError
from prolip.core.arrays import cross_entropy, to_torch, unit_rows
from prolip.encoders import load
from prolip.encoders.open_clip_torch import open_towers
from prolip.io.environment import MissingPackageError
from prolip.research.catalogue.parameters import rn50, vit_norms
from prolip.research.towers import training
from prolip.research.towers.coupled_prompts import Coupling
from prolip.research.towers.fine_tuning import class_rows, merge
from prolip.research.towers.lora_layers import SeparateAttention, count_factors
from saving import restored
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
    if name == "clip_lora":
        packed = ("in_proj_weight", "q_proj.weight", "k_proj.weight", "v_proj.weight")
        return {key for key in every if key.endswith(packed)}
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
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    allowed = expected_names(name, encoder)
    assert changed <= allowed
    assert len(changed) > 0.8 * len(allowed)  # a bias before a softmax has no gradient, and may stay
    if name != "clip_lora":
        assert (
            fitted.report["parameters"] == method.parameters(task) == sum(before[k].numel() for k in allowed)
        )

    adapted = fitted.encoder_for(encoder)
    assert adapted.fingerprint != encoder.fingerprint
    start = methods.create("zero_shot").fit(task)
    after, before = fitted.logits(adapted.encode(pixels)), start.logits(task.x[0])
    assert cross_entropy(after, task.y).mean() < cross_entropy(before, task.y).mean()


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_tuned_towers_come_back_from_what_is_saved(encoders, kind, name):
    encoder = encoders[kind]
    task, pixels = tower_task(encoder)
    fitted = methods.create(name, epochs=1, batch_size=4, lr=RATES[name]).fit(task)
    saved = {key: array.copy() for key, array in fitted.tensors().items()}
    again = restored(fitted, saved, encoder.head, task.text).bind(encoder)
    expected = fitted.logits(fitted.encoder_for(encoder).encode(pixels))
    assert_close(again.logits(again.encoder_for(encoder).encode(pixels)), expected, atol=1e-4, rtol=1e-4)


def test_counts_are_the_papers():
    """Full, last-layer, norm tuning and ProLIP on RN50; norms, LoRA and MaPLe on ViT-B/16."""
    open_clip = pytest.importorskip("open_clip")

    def towers(name):
        with torch.device("meta"):
            return open_towers(open_clip.CLIP(**open_clip.get_model_config(name)))

    def count(method, towers):
        return sum(p.numel() for p in methods.create(method).choose(towers).values())

    rn50, vit = towers("RN50"), towers("ViT-B-16")
    assert round(count("full", rn50) / 1e6, 2) == 38.32
    assert round(count("last_layer", rn50) / 1e6, 2) == 14.79
    assert count("norm_tuning", rn50) == 53_248  # 0.05M
    assert count("norm_tuning", vit) == 65_536  # 0.07M
    assert round(rn50.model.visual.attnpool.c_proj.weight.numel() / 1e6, 2) == 2.10
    lora = 2 * 3 * 12 * (2 * 768) + 2 * 3 * 12 * (2 * 512)  # r (in + out), q k v, blocks, both towers
    assert count_factors(vit, rank=2) == lora == 184_320
    assert round(sum(p.numel() for p in Coupling(2, 9, 512, 768, shared=False).parameters()) / 1e6, 2) == 3.56


def test_embeddings_are_normalised_in_the_loss(encoders):
    """The loss of the first step, against one written out."""
    encoder = encoders["vit"]
    task, _ = tower_task(encoder)
    fitted = methods.create("full", epochs=1, batch_size=12, lr=1e-12, view_area=1.0).fit(task)
    v = encoder.head(encoder.encode(views_seen(task, encoder)))
    logits = task.scale * v / np.linalg.norm(v, axis=1, keepdims=True) @ task.text.rows.T
    expected = cross_entropy(logits, task.y).mean()
    assert fitted.report["start_loss"] == pytest.approx(expected, rel=1e-4)


def views_seen(task, encoder):
    from prolip.research.towers.tower_method import Batches

    preprocess = dataclasses.replace(encoder.preprocess, view_area=1.0)
    with Batches(task.images, preprocess, seed=0) as batches:
        return batches.get(list(range(task.n)), 0)


def test_the_pull_to_the_pretrained_weights_works(encoders):
    task, _ = tower_task(encoders["resnet"])
    before = tensors(encoders["resnet"])

    def moved(lam):
        fitted = methods.create("last_layer", epochs=8, batch_size=4, lr=1e-3, lam=lam).fit(task)
        return sum(float(((fitted.changed[key] - before[key].numpy()) ** 2).sum()) for key in fitted.changed)

    assert moved(10.0) < 0.5 * moved(0.0)


@pytest.mark.parametrize("kind", ["vit", "hf"])
def test_lora_merged_is_lora_unmerged(encoders, kind):
    """The towers with peft's layers still in them, against the weights that `merge` makes."""
    encoder = encoders[kind]
    _, pixels = tower_task(encoder)
    method = methods.create("clip_lora", rank=2, alpha=3)
    towers = encoder.towers(copy=True)
    factors = method.choose(towers)
    towers.model.eval()  # no dropout
    with torch.no_grad():
        for parameter in factors.values():
            parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(0))
    merged = encoder.with_tensors(
        merge(encoder, {k: p.detach().numpy() for k, p in factors.items()}, 3 / 2**0.5)
    )
    with torch.no_grad():
        image = towers.embed_image(encoder.preprocess.normalise(to_torch(pixels))).numpy()
        text = class_rows(towers, encoder.tokens(["a photo of a cat.", "a dog."]), 2)
    assert_close(merged.head(merged.encode(pixels)), image, atol=1e-4, rtol=1e-3)
    expected = unit_rows(merged.text_head(merged.encode_text(["a photo of a cat.", "a dog."])))
    assert_close(text, expected, atol=1e-4, rtol=1e-3)
    assert not np.allclose(image, encoder.head(encoder.encode(pixels)), atol=1e-2)


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


def test_separate_attention_is_the_packed_one():
    packed = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    nn.init.normal_(packed.in_proj_bias)
    x, mask = torch.randn(2, 5, 16), torch.full((5, 5), float("-inf")).triu(1)
    with torch.no_grad():
        expected = packed(x, x, x, need_weights=False, attn_mask=mask)[0]
        assert_close(SeparateAttention(packed)(x, x, x, attn_mask=mask)[0], expected)


@pytest.mark.parametrize("name", ["full", "clip_lora"])
def test_computing_again_instead_of_keeping_changes_nothing(encoders, name):
    task, _ = tower_task(encoders["vit"])
    options = {"epochs": 2, "batch_size": 4, "lr": RATES[name]}
    kept = methods.create(name, **options).fit(task)
    again = methods.create(name, recompute=True, **options).fit(task)
    for key, tensor in kept.changed.items():
        assert_close(again.changed[key], tensor, atol=1e-6, rtol=1e-4)


class Interrupted(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("clip_lora", {"lr": 1e-2}),  # AdamW, and dropout
        ("full", {"lr": 1e-3}),  # Adam, and random crops
        ("coop", {"contexts": 3, "lr": 0.05}),  # SGD with momentum
        ("maple", {"depth": 2, "lr": 0.05}),
    ],
)
def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(
    encoders, tmp_path, monkeypatch, name, options, validated
):
    monkeypatch.setattr(training, "_WRITE_SECONDS", 0.0)
    task, _ = tower_task(encoders["vit"])
    options, held = {"epochs": 3, "batch_size": 4, **options}, task if validated else None
    whole = methods.create(name, **options).fit(task, validation=held).tensors()

    def stop(done, total):
        if done == 5:
            raise Interrupted

    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        methods.create(name, checkpoint=str(folder), **options).fit(task, stop, held)
    steps = []
    again = methods.create(name, checkpoint=str(folder), **options)
    resumed = again.fit(task, lambda n, _: steps.append(n), held)
    assert steps == [6, 7, 8, 9]
    for key, tensor in whole.items():
        assert_close(resumed.tensors()[key], tensor, atol=1e-6, rtol=1e-5)
    assert not list(folder.iterdir())  # a finished run leaves nothing behind


def test_a_checkpoint_of_another_run_is_refused(encoders, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "_WRITE_SECONDS", 0.0)
    task, _ = tower_task(encoders["vit"])

    def stop(done, total):
        raise Interrupted

    def fit(task=task, **more):
        options = {"contexts": 2, "epochs": 2, "checkpoint": str(tmp_path), **more}
        return methods.create("coop", **options).fit(task, stop)

    with pytest.raises(Interrupted):
        fit()
    with pytest.raises(training.OtherRunError):
        fit(lr=0.01)
    with pytest.raises(training.OtherRunError):  # as many images, of the same classes
        fit(dataclasses.replace(task, x=task.x[:, ::-1]))
    with pytest.raises(Interrupted):  # the folder may be written in another way, or moved
        fit(checkpoint=f"{tmp_path}/../{tmp_path.name}", recompute=True)
    (tmp_path / "training.safetensors").write_bytes(b"no")
    with pytest.raises(SavedModelError):
        fit()
    with pytest.raises(UsageError):
        fit(checkpoint=str(tmp_path / "training.safetensors" / "below"))


def test_progress_shows_the_loss(encoders):
    task, _ = tower_task(encoders["vit"])

    class Bar:
        def __init__(self):
            self.counts, self.notes = [], []

        def __call__(self, done, total):
            self.counts.append((done, total))

        def note(self, text):
            self.notes.append(text)

    bar = Bar()
    methods.create("coop", contexts=2, epochs=2, batch_size=6).fit(task, bar)
    assert bar.counts == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(note.startswith("loss ") for note in bar.notes)


def test_a_last_batch_is_dropped_or_kept_as_its_authors_do(encoders):
    """EuroSAT with two shots: twenty images in batches of sixteen are one step an epoch, or two."""
    task, _ = tower_task(encoders["vit"])
    for name, steps in (("coop", 1), ("full", 2), ("last_layer", 2), ("norm_tuning", 2), ("maple", 1)):
        method = methods.create(name, epochs=1, batch_size=16)
        assert method.recipe(task).per_epoch(20) == steps
        assert method.recipe(task).per_epoch(12) == 1
    assert methods.create("clip_lora").recipe(task).per_epoch(40) == 2


def test_the_best_epoch_on_a_validation_set_is_kept(encoders):
    task, pixels = tower_task(encoders["vit"])
    held = dataclasses.replace(task, y=methods.create("zero_shot").fit(task).predict(task.x[0]))
    for name in ("full", "clip_lora"):
        fitted = methods.create(name, epochs=4, batch_size=12, lr=0.02).fit(task, validation=held)
        assert fitted.report["best_epoch"] < 4  # training unlearns what zero-shot says
        seen = fitted.encoder_for(encoders["vit"]).encode(pixels)
        right = np.mean(fitted.predict(seen) == held.y)
        assert right == pytest.approx(fitted.report["validation_accuracy"])


def test_schedules():
    coop = training.TrainingRecipe(0.002, epochs=10, batch_size=4, warm_up=1)
    assert coop.rate(0, 8) == coop.rate(1, 8) == 1e-5  # two steps an epoch: the first epoch
    assert coop.rate(2, 8) == pytest.approx(0.002)
    assert coop.rate(12, 8) == pytest.approx(0.001)  # half of ten epochs after the warm-up
    lora = training.TrainingRecipe(2e-4, epochs=0, batch_size=4, steps=100, schedule="steps", floor=1e-6)
    assert lora.rate(0, 8) == pytest.approx(2e-4)
    assert lora.rate(50, 8) == pytest.approx((2e-4 + 1e-6) / 2)
    assert lora.total(8) == 100
    with pytest.raises(UsageError):
        training.TrainingRecipe(0.0, epochs=1, batch_size=1)


def test_divergence_is_told(encoders):
    task, _ = tower_task(encoders["vit"])
    with pytest.raises(training.DivergenceError):
        methods.create("coop", contexts=2, epochs=5, batch_size=12, lr=1e36).fit(task)


def test_a_method_says_what_an_encoder_lacks(encoders):
    task, _ = tower_task(encoders["resnet"])
    with pytest.raises(ModelError):
        methods.create("clip_lora").fit(task)


@pytest.mark.parametrize("method", ["coop", "plot", "last_layer"])
def test_classifier_saves_and_loads_what_changed_in_the_tower(folders, photos, tmp_path, method):
    clf = prolip.FewShotClassifier(
        folders["vit"], method, store=tmp_path / "store", options={"epochs": 2, "lr": 0.01}
    )
    clf.fit(photos)
    clf.save(tmp_path / "model")
    again = prolip.FewShotClassifier.load(tmp_path / "model", store=tmp_path / "store")
    test = sorted((photos / "test").rglob("*.png"))
    assert_close(again.predict_proba(test), clf.predict_proba(test), atol=1e-5, rtol=1e-4)
    # The base model's features are in the store already; they must not be taken for the tuned tower's.
    plain = prolip.FewShotClassifier(folders["vit"], "zero_shot", store=tmp_path / "store").fit(photos)
    result = again.evaluate(photos)
    assert result["zero_shot_accuracy"] == plain.score(photos)


def test_parameters_inside_towers_are_those_of_the_architectures():
    """Counted by formulas, and by torch on open_clip's models with random weights."""
    import open_clip

    def size(module):
        return sum(parameter.numel() for parameter in module.parameters())

    def norms(model, kind):
        return sum(size(module) for module in model.modules() if isinstance(module, kind))

    resnet = open_clip.create_model("RN50").visual
    assert (rn50().total, rn50().pooling) == (size(resnet), size(resnet.attnpool))
    assert rn50().norms == norms(resnet, torch.nn.BatchNorm2d)
    assert vit_norms() == norms(open_clip.create_model("ViT-B-16"), torch.nn.LayerNorm)
