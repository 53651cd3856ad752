"""Embeddings that a user brings, from files or as arrays."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from prolip import FewShotClassifier
from prolip.core.errors import InputError
from prolip.encoders.precomputed import read_embeddings

CLASSES = ("cat", "dog", "owl")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return {
        "images": rng.normal(size=(9, 5)).astype(np.float16),
        "labels": np.tile(np.arange(3), 3),
        "texts": rng.normal(size=(4, 3, 5)).astype(np.float32),
        "classes": np.array(CLASSES),
    }


def ensemble(texts):
    """Normalise each prompt's rows, average, normalise."""
    unit = texts / np.linalg.norm(texts, axis=2, keepdims=True)
    mean = unit.mean(axis=0)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def test_npz_with_everything(tmp_path, data):
    np.savez(tmp_path / "all.npz", **data)
    arrays = read_embeddings(tmp_path / "all.npz")
    assert arrays.classes == CLASSES
    assert arrays.y.tolist() == data["labels"].tolist()
    assert_allclose(arrays.x, data["images"].astype(np.float32))
    assert_allclose(arrays.text, ensemble(data["texts"]), atol=1e-6)


@pytest.mark.parametrize("names", [("x", "y", "text"), ("features", "targets", "text")])
def test_other_names_of_the_same_things(tmp_path, data, names):
    np.savez(tmp_path / "a.npz", **dict(zip(names, data.values(), strict=False)))
    assert_allclose(read_embeddings(str(tmp_path / "a.npz")).text, ensemble(data["texts"]), atol=1e-6)


def test_npy_with_files_beside_it(tmp_path, data):
    np.save(tmp_path / "x.npy", data["images"])
    np.save(tmp_path / "y.npy", data["labels"])
    np.save(tmp_path / "text.npy", data["texts"][0])
    names = [CLASSES[k] for k in data["labels"]]
    (tmp_path / "numbers.txt").write_text("\n".join(map(str, data["labels"])) + "\n")
    (tmp_path / "names.txt").write_text("\n".join(names))
    (tmp_path / "column.csv").write_text("\n".join(names))
    rows = [f"{i}.jpg,{name}" for i, name in enumerate(names)]
    (tmp_path / "table.csv").write_text("\n".join(["file,label", *rows]))
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    for labels in ("y.npy", "numbers.txt", "names.txt", "column.csv", "table.csv"):
        arrays = read_embeddings(
            tmp_path / "x.npy", tmp_path / labels, tmp_path / "text.npy", tmp_path / "classes.txt"
        )
        assert arrays.y.tolist() == data["labels"].tolist(), labels


def test_embeddings_alone_are_enough_to_predict(tmp_path, data):
    np.save(tmp_path / "x.npy", data["images"])
    arrays = read_embeddings(tmp_path / "x.npy")
    assert (len(arrays), arrays.y, arrays.text, arrays.classes) == (9, None, None, None)


def test_what_is_given_goes_before_what_is_stored(tmp_path, data):
    np.savez(tmp_path / "a.npz", **data)
    arrays = read_embeddings(tmp_path / "a.npz", labels=np.zeros(9), text=np.eye(3, 5))
    assert arrays.y.tolist() == [0] * 9
    assert_allclose(arrays.text, np.eye(3, 5))


def changed(array, index, value):
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"images": changed(d["images"], (2, 1), np.nan)}, "image embeddings holds 1 NaN"),
        (lambda d: {"images": changed(d["images"], 4, 0)}, r"1 all-zero rows \(the first is row 4\)"),
        (lambda d: {"images": d["images"][0]}, r"must be \[n, D\], not empty, got shape \[5\]"),
        (lambda d: {"images": d["images"][:0]}, r"not empty, got shape \[0, 5\]"),
        (lambda d: {"images": d["images"][:, :4]}, "images embed into 4 dimensions, text has 5"),
        (lambda d: {"labels": d["labels"][:8]}, "9 images but 8 labels"),
        (lambda d: {"labels": d["labels"] + 1}, r"labels must lie in 0 \.\. 2 .* got 1 \.\. 3"),
        (lambda d: {"labels": d["labels"] - 1}, r"got -1 \.\. 1"),
        (lambda d: {"labels": d["labels"] / 2}, "integers"),
        (lambda d: {"labels": ["cat"] * 8 + ["cow"]}, "not among the classes: cow"),
        (
            lambda d: {"labels": ["cat"] * 9, "classes": None},
            "labels are names, like 'cat': give the classes",
        ),
        (lambda d: {"texts": changed(d["texts"], (1, 2), 0)}, "text has 1 all-zero rows"),
        (lambda d: {"texts": d["texts"][0, 0]}, r"text must be \[classes, D\] or \[prompts, classes, D\]"),
        (lambda d: {"classes": ["cat", "dog"]}, "2 class names for 3 text rows"),
    ],
)
def test_arrays_that_do_not_fit(data, change, message):
    with pytest.raises(InputError, match=message):
        read_embeddings(*{**data, **change(data)}.values())


def test_files_that_cannot_be_read(tmp_path, data):
    np.savez(tmp_path / "other.npz", weights=data["images"])
    with pytest.raises(InputError, match="weights"):
        read_embeddings(tmp_path / "other.npz")
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"objects\.npy.*object"):
        read_embeddings(tmp_path / "objects.npy")
    np.savez(tmp_path / "cut.npz", **data)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:-200])
    with pytest.raises(InputError, match=r"cut\.npz"):
        read_embeddings(tmp_path / "cut.npz")
    with pytest.raises(InputError, match=r"none\.npy"):
        read_embeddings(tmp_path / "none.npy")
    with pytest.raises(InputError, match=r"features\.pkl.*\.npz, \.npy, \.txt, \.csv"):
        read_embeddings(tmp_path / "features.pkl")
    (tmp_path / "wide.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="'label': a, b"):
        read_embeddings(data["images"], tmp_path / "wide.csv")


def test_classes_are_told_apart_by_name_not_by_place(tmp_path):
    rng = np.random.default_rng(3)
    text = np.eye(4, 8)
    y = np.arange(24) % 4
    x = text[y] + 0.1 * rng.normal(size=(24, 8))
    clf = FewShotClassifier("arrays").fit(*_npz(tmp_path / "a.npz", x, y, text, list("abcd")))
    order = [2, 0, 3, 1]
    place = np.argsort(order)
    fresh = x + 0.01
    assert (
        clf.evaluate(*_npz(tmp_path / "b.npz", fresh, place[y], text[order], list("cadb")))["accuracy"] == 1
    )
    with pytest.raises(InputError, match="'z' is not among the 4 classes"):
        clf.evaluate(*_npz(tmp_path / "c.npz", x, y, text, list("abcz")))
    with pytest.raises(InputError, match="two classes are called 'a'"):
        clf.evaluate(*_npz(tmp_path / "d.npz", x, y, text, list("abca")))


def _npz(path, x, y, text, classes):
    np.savez(path, images=x, labels=y, texts=text, classes=classes)
    return (path,)
