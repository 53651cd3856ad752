"""Shots as the authors draw them, templates as the paper has them."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prolip.core.errors import InputError, UnknownNameError, UsageError
from prolip.data.sampling import sample_few_shot, sample_train_val, warn_of_short_classes
from prolip.data.templates import DEFAULT, TEMPLATES, as_templates, templates_for

LABELS = [2, 0, 2, 1, 0, 2, 2, 0, 1, 0]  # first seen: 2, 0, 1
ITEMS = {2: [0, 2, 5, 6], 0: [1, 4, 7, 9], 1: [3, 8]}


@pytest.mark.parametrize("seed", range(1, 11))
def test_the_draw_is_that_of_the_global_generator(seed):
    random.seed(seed)
    expected = [index for label in (2, 0, 1) for index in random.sample(ITEMS[label], 2)]
    assert sample_few_shot(LABELS, 2, seed) == expected


def test_validation_shots_come_after_training_shots_from_one_stream():
    val_labels = [1, 1, 0, 0, 2, 2, 2]
    random.seed(3)
    train = [index for label in (2, 0, 1) for index in random.sample(ITEMS[label], 2)]
    val = [i for items in ([0, 1], [2, 3], [4, 5, 6]) for i in random.sample(items, 2)]
    assert sample_train_val(LABELS, val_labels, 2, 3) == (train, val, "val")


def test_a_short_class_is_kept_or_repeated():
    random.seed(5)
    first, second = random.sample(ITEMS[2], 3), random.sample(ITEMS[0], 3)
    assert sample_few_shot(LABELS, 3, 5) == first + second + ITEMS[1]
    assert sample_few_shot(LABELS, 3, 5, short="repeat") == first + second + random.choices(ITEMS[1], k=3)


def test_all_shots_and_wrong_ones():
    assert sample_few_shot(LABELS, None, 0) == ITEMS[2] + ITEMS[0] + ITEMS[1]
    with pytest.raises(InputError):
        sample_few_shot(LABELS, 0, 0)
    with pytest.raises(UsageError):
        sample_few_shot(LABELS, 1, 0, short="kep")


@given(st.lists(st.integers(0, 4), min_size=1), st.integers(1, 6), st.integers(0, 2**32))
def test_each_class_gives_as_many_as_it_can_and_none_twice(labels, shots, seed):
    chosen = sample_few_shot(labels, shots, seed)
    assert len(set(chosen)) == len(chosen)
    assert Counter(labels[i] for i in chosen) == {k: min(n, shots) for k, n in Counter(labels).items()}
    assert chosen == sample_few_shot(labels, shots, seed)


@pytest.mark.parametrize(
    ("dataset", "prompt"),
    [
        ("Caltech101", "a photo of a cat."),
        ("StanfordCars", "a photo of a cat."),
        ("SUN397", "a photo of a cat."),
        ("DTD", "cat texture."),
        ("Eurosat", "a centered satellite photo of cat."),
        ("FGVCAircraft", "a photo of a cat, a type of aircraft."),
        ("Food101", "a photo of cat, a type of food."),
        ("Flowers102", "a photo of a cat, a type of flower."),
        ("OxfordPets", "a photo of a cat, a type of pet."),
        ("UCF101", "a photo of a person doing cat."),
    ],
)
def test_the_papers_templates(dataset, prompt):
    assert [template.format("cat") for template in templates_for(dataset)] == [prompt]


def test_templates_from_what_a_user_gives():
    assert templates_for("imagenet-a")[2:4] == ("a origami {}.", "a photo of the large {}.")
    assert as_templates(None) == DEFAULT == ("a photo of a {}.",)
    assert as_templates("Oxford-Pets") == TEMPLATES["oxford_pets"]
    assert as_templates("a {}!") == ("a {}!",)
    assert as_templates(["{}", "the {}"]) == ("{}", "the {}")


def test_shots_beyond_what_is_there_are_told():
    warn_of_short_classes([0, 0, 1, 1, 1], None)
    warn_of_short_classes([0, 0, 1, 1, 1], 2)
    with pytest.warns(UserWarning, match="3 shots .* 1 of 2 classes have fewer images, 2 to 2: all"):
        warn_of_short_classes([0, 0, 1, 1, 1], 3)
    with pytest.warns(UserWarning, match="500 shots .* 2 of 2 classes have fewer images, 2 to 3"):
        warn_of_short_classes([0, 0, 1, 1, 1], 500)


@pytest.mark.parametrize(
    "template",
    ["{:>2000000000}", "{{}} {:>2000000000}", "{name}", "{!r}", "{} {}", "a {", "a } {}", "none"],
)  # fmt: skip
def test_only_a_plain_pair_of_braces_stands_for_the_class(template):
    for wrong in ([template], []):
        with pytest.raises(UsageError):
            as_templates(wrong)
    with pytest.raises(UnknownNameError):
        as_templates("foot101")
