"""Protocols on made-up features, against plain loops written out."""

import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from prolip import methods
from prolip.core import Head, InputError, ModelError, Task, Text
from prolip.core.arrays import unit_rows
from prolip.data.sampling import (
    sample_base_support,
    sample_paired,
    sample_support,
    sample_train_val,
)
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.manifold import NEIGHBOURS, manifold, neighbour_purity
from prolip.research.protocols.protocols import (
    base_to_new,
    few_shot,
    harmonic_mean,
    shared_classes,
    total_harmonic_means,
    transfer,
)
from prolip.research.protocols.run import Run

CLASSES, WIDTH, DIM = 5, 12, 8


def make_dataset(name="toy", classes=CLASSES, seed=0, val=True, paired=False, views=2):
    """Gaussian classes, and texts that point roughly at them."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, WIDTH)).astype(np.float32)
    head = Head(rng.normal(size=(WIDTH, DIM)).astype(np.float32) / WIDTH**0.5)

    def part(count, views):
        labels = [k for _ in range(count) for k in range(classes)]  # interleaved
        x = centres[labels] + 0.9 * rng.normal(size=(views, len(labels), WIDTH)).astype(np.float32)
        return EncodedSplit.whole(x, labels)

    parts = {"train": part(12, views), "test": part(20, 1)}
    if val:
        parts["val"] = part(6, 1)
    names = tuple(f"class {k}" for k in range(classes))
    text = Text(head(centres) + 0.5 * rng.normal(size=(classes, DIM)), names)
    other = Text(head(centres), names)
    return EncodedDataset(name, names, head, 20.0, {"own": text, "photo": other}, parts, paired)


PROLIP = {"lam": 0.1}


def test_few_shot_is_a_fit_on_the_drawn_images():
    dataset = make_dataset()
    found = few_shot(dataset, Run("prolip", PROLIP, shots=4, seed=3, views=2, scale=0.5))

    labels = dataset.splits["train"].labels
    random.seed(3)
    by_label = {}
    for place, label in enumerate(labels):
        by_label.setdefault(label, []).append(place)
    chosen = [place for places in by_label.values() for place in random.sample(places, 4)]
    x = dataset.splits["train"].x[:, chosen]
    task = Task(x, [labels[i] for i in chosen], dataset.texts["own"], dataset.head, 10.0)
    logits = methods.create("prolip", **PROLIP).fit(task).logits(dataset.splits["test"].x[0])
    hits = logits.argmax(axis=1) == dataset.splits["test"].labels

    assert found["accuracy"] == pytest.approx(hits.mean())
    assert found["lam"] == 0.1
    assert found["parameters"] == WIDTH * DIM


def test_all_the_data_are_all_the_shots():
    dataset = make_dataset()
    assert sample_support(dataset.splits["train"].labels, None, 1) == sample_support(
        dataset.splits["train"].labels, None, 2
    )
    found = few_shot(dataset, Run("prolip", {"lam": "1/N"}, shots=None))
    assert found["lam"] == pytest.approx(1 / 12)


def test_the_grid_is_judged_on_validation_shots_and_the_first_of_equals_wins():
    dataset = make_dataset()
    grid = ({"lam": 1e4}, {"lam": 0.1}, {"lam": 0.1000001})
    run = Run("prolip", shots=4, seed=2, grid=grid, validation="shots")
    found = few_shot(dataset, run)

    train, val, part = sample_train_val(dataset.splits["train"].labels, dataset.splits["val"].labels, 4, 2)
    assert part == "val"
    x, y = dataset.splits["val"].take(val)
    accuracies = []
    for options in run.grid:
        fitted = methods.create("prolip", **options).fit(run.task(dataset, train))
        accuracies.append((fitted.predict(x[0]) == y).mean())
    best = accuracies.index(max(accuracies))
    assert found["chosen"] == run.grid[best]
    assert found["validation_accuracy"] == pytest.approx(max(accuracies))
    assert accuracies[1] == accuracies[2]  # a tie: the later one is never chosen
    assert best != 2


@pytest.mark.parametrize(("rule", "count"), [("shots", 6), ("min4", 4), ("split", 6)])
def test_a_method_chooses_on_the_validation_images_of_its_rule(rule, count):
    """N = 6 shots of 5 classes; the whole split has 6 images a class, each once."""
    dataset = make_dataset()
    grid = tuple({"alpha": alpha} for alpha in (1e-3, 0.1, 1.0, 10.0))
    run = Run("gda", shots=6, seed=2, validation=rule, grid=grid)
    drawn = run.draw(dataset)
    assert len(drawn.validation) == count * CLASSES
    if rule == "split":
        assert drawn.validation == list(range(6 * CLASSES))
    x, y = dataset.splits["val"].take(drawn.validation)
    task = run.task(dataset, drawn.train)
    accuracies = [(methods.create("gda", **pair).fit(task).predict(x[0]) == y).mean() for pair in grid]
    assert few_shot(dataset, run)["chosen"] == grid[int(np.argmax(accuracies))]


def test_fewer_validation_shots_are_the_first_of_each_class():
    labels = [0, 1] * 20
    train, val, part = sample_train_val(labels, None, 8, seed=5, rule="min4")
    assert (part, len(train), [labels[i] for i in val]) == ("train", 16, [0] * 4 + [1] * 4)
    assert set(val) < set(sample_train_val(labels, None, 8, seed=5)[1])


def test_without_a_validation_part_shots_come_in_pairs():
    labels = [0, 1] * 8
    train, val, part = sample_train_val(labels, None, 3, seed=5)
    assert part == "train"
    assert not set(train) & set(val)
    assert sorted(labels[i] for i in train) == sorted(labels[i] for i in val) == [0] * 3 + [1] * 3


def test_imagenet_draws_twice_as_many_and_splits_them():
    """The authors' loop for ImageNet, written out."""
    labels = [k for k in range(3) for _ in range(9)]
    random.seed(7)
    expected_train, expected_val = [], []
    for k in range(3):
        drawn = random.sample([i for i, label in enumerate(labels) if label == k], 4)
        expected_train += drawn[:2]
        expected_val += drawn[2:]
    assert sample_paired(labels, 2, seed=7) == (expected_train, expected_val)
    assert sample_support(labels, 2, 7, paired=True) == expected_train
    assert sample_support(labels, 2, 7) != expected_train


def test_too_few_images_for_a_pair_are_refused():
    with pytest.raises(InputError):
        sample_paired([0] * 4 + [1] * 3, 2, seed=1)


def test_base_shots_are_drawn_over_all_classes_then_filtered():
    labels = [k for _ in range(6) for k in range(5)]
    drawn = sample_base_support(labels, 5, 2, seed=4)
    everything = sample_support(labels, 2, 4)
    assert drawn == [i for i in everything if labels[i] <= 2]  # the middle class of five is base
    only_base = sample_support([label for label in labels if label <= 2], 2, 4)
    assert [labels[i] for i in drawn] == [0, 0, 1, 1, 2, 2]
    assert len(only_base) == len(drawn)


def test_base_to_new_measures_each_half_among_its_own_classes():
    dataset = make_dataset()
    found = base_to_new(dataset, Run("prolip", PROLIP, shots=4, seed=1, protocol="base_to_new"))

    chosen = sample_base_support(dataset.splits["train"].labels, CLASSES, 4, 1)
    x, y = dataset.splits["train"].take(chosen)
    text = dataset.texts["own"]
    fitted = methods.create("prolip", **PROLIP).fit(Task(x, y, text.rows[:3], dataset.head, 20.0))
    test_x, test_y = dataset.splits["test"].all()
    base = (fitted.predict(test_x[test_y < 3]) == test_y[test_y < 3]).mean()
    new_rows = fitted.with_text(text.rows[3:])
    new = (new_rows.predict(test_x[test_y >= 3]) == test_y[test_y >= 3] - 3).mean()
    assert found["base"] == pytest.approx(base)
    assert found["new"] == pytest.approx(new)
    assert found["harmonic"] == pytest.approx(harmonic_mean(base, new))


def test_total_harmonic_means():
    first, second = total_harmonic_means([(0.8, 0.6), (0.5, 0.9)])
    assert first == pytest.approx((2 * 0.48 / 1.4 + 2 * 0.45 / 1.4) / 2)
    assert second == pytest.approx(2 * 0.65 * 0.75 / 1.4)
    assert harmonic_mean(0.0, 0.0) == 0.0


def test_transfer_measures_an_open_model_on_the_target_classes():
    source, target = make_dataset("source"), make_dataset("target", classes=3, seed=0)
    found = transfer(source, Run("zero_shot", shots=1), [target])
    x, y = target.splits["test"].all()
    z = unit_rows(source.head(x))
    expected = ((z @ target.texts["own"].rows.T).argmax(axis=1) == y).mean()
    assert found["targets"]["target"] == pytest.approx(expected)
    assert found["accuracy"] == found["targets"]["source"]


def test_a_closed_model_is_measured_on_the_columns_of_imagenets_variants():
    source = make_dataset("imagenet")
    target = make_dataset("imagenet_a", classes=2)
    object.__setattr__(target, "imagenet_labels", (3, 1))
    assert shared_classes(source, target) == [3, 1]


def test_a_closed_model_needs_shared_classes():
    source, target = make_dataset("source"), make_dataset("target", classes=2)
    object.__setattr__(target, "classes", ("class 4", "another"))
    with pytest.raises(InputError, match="'another'"):
        shared_classes(source, target)
    object.__setattr__(target, "classes", ("class 4", "class 0"))
    assert shared_classes(source, target) == [4, 0]


def test_templates_choose_the_text():
    dataset = make_dataset()
    own, photo = (few_shot(dataset, Run("zero_shot", shots=1, template=t)) for t in ("own", "photo"))
    assert photo["accuracy"] > own["accuracy"]  # these texts are the class centres themselves
    with pytest.raises(InputError):
        dataset.text("none")


def test_only_what_was_drawn_needs_features():
    part = EncodedSplit([0, 1, 0, 1], np.random.default_rng(0).normal(size=(1, 2, 3)), np.array([1, 2]))
    x, y = part.take([2, 1])
    assert np.array_equal(x[0], part.x[0][[1, 0]])
    assert y.tolist() == [0, 1]
    with pytest.raises(InputError):
        part.take([0])
    with pytest.raises(InputError):
        part.take([1], views=2)


def test_neighbour_purity_is_the_share_of_near_images_of_the_same_class():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.arange(40) % 3
    expected = []
    for i in range(40):
        others = sorted((j for j in range(40) if j != i), key=lambda j, i=i: -x[i] @ x[j])
        expected.append(np.mean([y[j] == y[i] for j in others[:NEIGHBOURS]]))
    assert neighbour_purity(x, y) == pytest.approx(np.mean(expected))
    assert neighbour_purity(x[:3], y[:3]) == 0  # fewer images than neighbours


def test_the_figure_has_the_embeddings_before_and_after_the_fit(monkeypatch):
    class FirstColumns:
        """In the place of UMAP, which takes seconds to import: the first two dimensions."""

        def __init__(self, n_neighbors, metric, random_state, n_jobs):
            assert (n_neighbors, metric, random_state) == (15, "cosine", 4)

        def fit_transform(self, embedding):
            return embedding[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=FirstColumns))
    dataset, run = make_dataset(), Run("prolip", PROLIP, shots=4, seed=4)
    found = manifold(dataset, run)
    x, y = dataset.splits["test"].all()
    assert found["labels"] == y.tolist()
    weights = {"before": dataset.head.weight}
    weights["after"] = run.create().fit(run.task(dataset, run.draw(dataset).train)).head.weight
    for stage, weight in weights.items():
        embedding = x @ weight / np.linalg.norm(x @ weight, axis=1, keepdims=True)
        np.testing.assert_allclose(found[f"points_{stage}"], embedding[:, :2], atol=1e-3)
        assert found[f"purity_{stage}"] == pytest.approx(neighbour_purity(embedding, y))
        predicted = (embedding @ dataset.texts["own"].rows.T).argmax(axis=1)
        assert found[f"accuracy_{stage}"] == np.mean(predicted == y)
    assert found["accuracy"] == found["accuracy_after"] > found["accuracy_before"]
    with pytest.raises(ModelError):  # no embedding of its own
        manifold(dataset, Run("gda", {"alpha": 0.1}, shots=4, seed=4))
