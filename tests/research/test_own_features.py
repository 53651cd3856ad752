"""Features of one's own: what is read, what is refused, and the units of texts."""

import numpy as np
import pytest

from prolip import Head, Task, Text, methods
from prolip.core import InputError, UsageError
from prolip.core.arrays import unit_rows
from prolip.methods.base import Shape
from prolip.methods.task_res import raw_texts
from prolip.research.catalogue import find_experiment
from prolip.research.datasets.features import FeatureDataset
from prolip.research.reporting.results import Results
from prolip.research.running.plan import make_plan
from prolip.research.running.run import run_plan
from prolip.research.running.source import Features
from tiny_bench import TinyEncoder

RNG = np.random.default_rng(0)
MEANS = RNG.normal(size=(3, 6))
Y = np.repeat(np.arange(3), 8)
X = MEANS[Y] + 0.3 * RNG.normal(size=(24, 6))


def test_arrays_come_back_from_a_file(tmp_path):
    weight, split = RNG.normal(size=(6, 4)), np.array(["train", "test", "val", "train"] * 6)
    text = RNG.normal(size=(3, 4))
    np.savez(
        tmp_path / "mine.npz", x=X, y=np.array(["b", "a", "c"])[Y], classes=np.array(["a", "b", "c"]),
        text=text, weight=weight, split=split, scale=50.0,
    )  # fmt: skip
    dataset = FeatureDataset.read(tmp_path / "mine.npz")
    assert (dataset.name, dataset.classes, dataset.scale) == ("mine", ("a", "b", "c"), 50.0)
    assert dataset.y.tolist() == np.array([1, 0, 2])[Y].tolist()
    assert {name: len(rows) for name, rows in dataset.images.items()} == {"train": 12, "val": 6, "test": 6}
    assert np.allclose(dataset.as_text().rows, unit_rows(text))


def test_without_splits_every_second_image_of_a_class_tests():
    dataset = FeatureDataset("mine", X, Y, MEANS)
    assert dataset.images["train"].tolist() == list(range(0, 24, 2))
    assert dataset.classes == ("class 0", "class 1", "class 2")


def test_a_file_of_embed_names_classes_and_splits_by_its_folders(tmp_path):
    paths = [
        f"photos/{split}/{name}/{i}.jpg" for split in ("train", "test") for name in "ab" for i in range(2)
    ]
    np.savez(tmp_path / "index.npz", paths=np.array(paths), embeddings=unit_rows(X[:8]))
    dataset = FeatureDataset.read(tmp_path / "index.npz")
    assert (dataset.classes, dataset.y.tolist()) == (("a", "b"), [0, 0, 1, 1] * 2)
    assert dataset.images["test"].tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize(
    "wrong",
    [
        {"y": Y[:-1]}, {"text": MEANS[:, :5]}, {"text": MEANS[:2]}, {"x": np.zeros((24, 6))},
        {"text": None}, {"y": ["a"] * 24, "classes": ["b", "c", "d"]}, {"head": Head(np.eye(5))},
        {"split": ["train"] * 24}, {"split": ["training", "test"] * 12}, {"x": X * np.nan},
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(wrong):
    with pytest.raises(InputError):
        FeatureDataset(**{"name": "mine", "x": X, "y": Y, "text": MEANS, **wrong})


def test_unknown_arrays_are_named(tmp_path):
    np.savez(tmp_path / "mine.npz", x=X, y=Y, texts=MEANS)
    with pytest.raises(InputError):
        FeatureDataset.read(tmp_path / "mine.npz")


def test_texts_of_unit_length_and_longer_ones_give_methods_the_same_lengths():
    """A program that trains texts by steps depends on their length: unit ones get that of CLIP's."""
    unit = Task(X, Y, Text(MEANS), scale=100.0)
    features = Text.from_features(unit_rows(MEANS)[None], Head.identity(6), "abc")
    assert np.allclose(raw_texts(unit), 10 * unit_rows(MEANS))
    assert np.allclose(raw_texts(Task(X, Y, features, scale=100.0)), raw_texts(unit))
    long = FeatureDataset("mine", X, Y, 7 * unit_rows(MEANS)).as_text()
    assert np.allclose(raw_texts(Task(X, Y, long)), 7 * unit_rows(MEANS), rtol=1e-5)
    with pytest.raises(InputError):
        methods.create("clap_tip_adapter_f").fit(Task(unit_rows(X), Y, MEANS))


def test_a_table_of_own_features(tmp_path, monkeypatch):
    source = Features([FeatureDataset("first", X, Y, MEANS), FeatureDataset("second", X + 0.1, Y, MEANS)])
    some = {"entries": ("zero_shot", "gda"), "shots": (2,), "seeds": (1, 2)}
    plan = make_plan(find_experiment("validation_free"), source, **some)
    assert (plan.datasets, plan.models, plan.views) == (("first", "second"), ("own features",), 1)
    assert run_plan(plan, source, tmp_path / "r.sqlite", jobs=1).done == 6
    run = next(one for one in Results.read("validation_free", tmp_path / "r.sqlite").runs)
    test = np.arange(1, 24, 2)
    cosines = unit_rows(X[test]) @ unit_rows(MEANS).T
    assert run.result["accuracy"] == np.mean(cosines.argmax(axis=1) == Y[test])


def test_without_text_an_encoder_reads_the_names(tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda name, device="auto": TinyEncoder())
    source = Features([FeatureDataset("mine", X, Y, classes=["cat", "dog", "owl"])])
    some = {"entries": ("zero_shot",), "shots": (1,), "seeds": (1,)}
    chosen = find_experiment("validation_free")
    with pytest.raises(UsageError):
        run_plan(make_plan(chosen, source, **some), source, tmp_path / "r.sqlite", jobs=1)
    plan = make_plan(chosen, source, models=("tiny",), **some)
    assert run_plan(plan, source, tmp_path / "r.sqlite", jobs=1).done == 1


@pytest.mark.parametrize("kind", ["plain", "bias", "residual"])
def test_the_bias_is_tuned_like_a_row_of_the_matrix(kind):
    """The objective is at a minimum in both: no small step, in any direction, lowers it."""
    weight, bias = RNG.normal(size=(6, 4)), None if kind == "plain" else 0.3 * RNG.normal(size=4)
    x = X if kind != "residual" else np.concatenate([X, 0.5 * RNG.normal(size=(24, 4))], axis=1)
    head = Head(weight, bias, residual=kind == "residual")
    task = Task(x, Y, MEANS @ weight, head, 5.0)
    fitted = methods.create("prolip_bias", lam=0.1).fit(task)
    b0 = np.zeros(4) if bias is None else bias

    def objective(w, b):
        logits = 5 * unit_rows(Head(w, b, head.residual)(x)) @ task.text.rows.T
        loss = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(24), Y]
        return loss.mean() + 0.1 * (((w - weight) ** 2).sum() + ((b - b0) ** 2).sum())

    least = objective(fitted.head.weight, fitted.head.bias)
    assert least < objective(weight, b0)
    for _ in range(20):
        step_w, step_b = 1e-3 * RNG.normal(size=(6, 4)), 1e-3 * RNG.normal(size=4)
        assert objective(fitted.head.weight + step_w, fitted.head.bias + step_b) > least - 1e-9
    assert np.abs(fitted.head.bias - b0).max() > 1e-3
    assert methods.create("prolip_bias").count(Shape(6, 4, 3, 24)) == 28
