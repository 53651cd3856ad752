"""Class names have one spelling wherever they come in; file paths stay as they are."""

from __future__ import annotations

import csv

import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api.grow import rename_classes
from prolip.app import edits
from prolip.app.state import State
from prolip.core import InputError, ProlipError
from prolip.data import read_images
from prolip.data.imageset import normalize_name

NFC = "caf\u00e9"
NFD = "cafe\u0301"
SPELLINGS = [NFD, f" {NFC}\t", f"\n{NFD} "]


def pictures(folder, name, first=0, count=3):
    """Images of a colour in a class folder."""
    place = folder / name
    place.mkdir(parents=True)
    colour = list(COLOURS.values())[len(name) % 3]
    for k in range(count):
        blotch(colour, first + k, size=16).save(place / f"{k}.png")


@pytest.fixture(scope="module")
def model(offline, tmp_path_factory):
    """Two classes, one of them with an accent."""
    folder = tmp_path_factory.mktemp("cafes")
    pictures(folder, NFC)
    pictures(folder, "bar", 10)
    return FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False).fit(folder).model_


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_one_spelling(spelling):
    assert normalize_name(spelling) == NFC


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a b", "ab"),
        ("caf\u00e9", "cafe"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u062e\u0648\u0627\u0647\u0645",
        ),  # Persian
        ("\u0915\u094d\u200d\u0937", "\u0915\u094d\u0937"),  # Hindi
        ("\U0001f469\u200d\U0001f680", "\U0001f469\U0001f680"),  # an astronaut; a woman and a rocket
        ("\uff21", "A"),  # a wide A
    ],
)
def test_names_that_look_different_stay_different(first, second):
    assert normalize_name(first) == first
    assert normalize_name(first) != normalize_name(second)


def test_two_folders_of_one_name_are_refused_with_both_spelled_out(tmp_path):
    pictures(tmp_path, NFC)
    pictures(tmp_path, NFD)
    if len(list(tmp_path.iterdir())) == 1:
        pytest.skip("this file system has one spelling")
    with pytest.raises(InputError, match=r"caf\\xe9.*cafe\\u0301|cafe\\u0301.*caf\\xe9"):
        read_images(tmp_path)


def test_labels_of_a_table_are_one_class_however_they_are_spelled(tmp_path):
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "label"])
        for k, label in enumerate([NFC, *SPELLINGS, "bar"]):
            (tmp_path / f"{k}.png").touch()
            writer.writerow([f"{k}.png", label])
    assert read_images(tmp_path / "a.csv").classes == ["bar", NFC]


def test_another_spelling_is_the_same_class_to_a_model(model, offline, tmp_path):
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False)
    clf.model_ = model
    pictures(tmp_path, NFD, first=50, count=2)
    assert clf.report(tmp_path).counts == (0, 2)
    assert clf.add(tmp_path).added_["added_classes"] == []
    assert clf.add([blotch((1, 2, 3), 9)], [f"{NFD} "]).added_["added_classes"] == []
    with pytest.raises(ProlipError):
        clf.add(names=[NFD])
    assert clf.add(names=["the\u0301"]).added_["added_classes"] == ["th\u00e9"]


def test_classes_are_found_and_renamed_in_any_spelling(model):
    assert rename_classes(model, {NFD: "the\u0301"}).classes == ("bar", "th\u00e9")
    with pytest.raises(ProlipError):
        rename_classes(model, {"bar": NFD})


def test_names_of_a_page(tmp_path):
    state = State()
    state.apply(edits.add_class(state, f"{NFD} "))
    assert state.classes["1"].name == NFC
    with pytest.raises(InputError):
        edits.add_class(state, f" {NFC}")
