"""`prolip bench` and `prolip datasets`, as a user types them."""

import json

import numpy as np
import pytest

from tiny_bench import TinyEncoder


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda name, device="auto": TinyEncoder())


@pytest.fixture
def ran(prolip, photos, tmp_path):
    """A small run, and the file of its results."""
    results = tmp_path / "results.sqlite"
    code, out, err = prolip(
        "bench", "run", "validation_free", "--data", photos.parent, "--datasets", "photos", "--seeds", "1-2",
        "--shots", "1", "2", "--line", "zero_shot", "prolip", "--views", "1", "--jobs", "1", "--results",
        results, "--json",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["done"] == 5
    return results


def test_list_names_every_experiment(prolip):
    found = json.loads(prolip("bench", "list", "--json")[1])
    assert {"validation_free", "sensitivity", "base_to_new", "umap"} <= {e["name"] for e in found}
    lines = json.loads(prolip("bench", "list", "views", "--json")[1])
    assert [line["key"] for line in lines][:2] == ["views1_adam", "views2_adam"]
    assert "few_shot_validation" in prolip("bench", "list")[1]


def test_run_then_table_in_every_format(prolip, ran):
    for style, word in (
        ("text", "Zero-shot"),
        ("latex", r"\toprule"),
        ("csv", "mean"),
    ):
        code, out, err = prolip("bench", "table", "validation_free", "--results", ran, "--format", style)
        assert code == 0, err
        assert word in out
    shown = prolip("bench", "table", "validation_free", "--results", ran)[1]
    assert "validation_free, on photos" in shown
    assert "58.89" not in shown  # the paper's datasets are others


def test_own_features_own_method_and_options_in_one_command(prolip, tmp_path, monkeypatch):
    """The path of a student: arrays, a method in a file beside them, a LaTeX table over seeds."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(4, 8))
    for name in ("first", "second"):
        y = np.repeat(np.arange(4), 12)
        x = 10 * (means[y] + 0.5 * rng.normal(size=(48, 8)))
        np.savez(tmp_path / f"{name}.npz", x=x, y=y, text=means + 0.8 * rng.normal(size=(4, 8)))
    (tmp_path / "mymethod.py").write_text(
        "from dataclasses import dataclass\n"
        "from prolip import methods\n"
        "@dataclass(frozen=True)\n"
        "class Mine(methods.get('gda')):\n"
        "    alpha: float = 0.5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    results = tmp_path / "r.sqlite"
    code, out, err = prolip(
        "bench", "run", "validation_free", "--features", tmp_path / "first.npz", tmp_path / "second.npz",
        "--line", "zero_shot", "clap", "prolip:lam=0.1", "mymethod:Mine:alpha=1.0", "--seeds", "1-2",
        "--shots", "1", "2", "--jobs", "1", "--results", results,
    )  # fmt: skip
    assert code == 0, err
    assert "Mine, alpha=1.0" in out
    table = prolip("bench", "table", "validation_free", "--results", results, "--format", "latex")[1]
    assert r"\caption{validation\_free, on first, second" in table
    assert "lam=0.1" in table


def test_rows(prolip, ran, tmp_path):
    assert prolip("bench", "rows", "validation_free", "--results", ran, "-o", tmp_path / "rows.csv")[0] == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 6


def test_published_figures_are_listed_with_their_programs(prolip):
    rows = json.loads(prolip("bench", "published", "validation_free", "--json")[1])
    found = {row["row"]: row["compared"] for row in rows}
    assert found["ProLIP"] == "same"
    assert prolip("bench", "published", "--format", "markdown")[1].startswith("| experiment |")


def test_run_then_plot(prolip, ran, tmp_path):
    pytest.importorskip("matplotlib")
    assert prolip("bench", "plot", "validation_free", "--results", ran, "-o", tmp_path / "p.svg")[0] == 0
    assert (tmp_path / "p.svg").read_text().lstrip().startswith("<?xml")


def test_a_failed_run_says_so_and_exits_1(prolip, photos, tmp_path):
    """Eight shots to train and eight to validate need sixteen images of each class; there are six."""
    words = (
        "--data", photos.parent, "--datasets", "photos", "--seeds", "1", "--shots", "8", "--line",
        "prolip", "--views", "1", "--jobs", "1", "--results", tmp_path / "r.sqlite",
    )  # fmt: skip
    assert prolip("bench", "run", "few_shot_validation", *words, "--json")[0] == 1
    out = prolip("bench", "failures", "few_shot_validation", "--results", tmp_path / "r.sqlite")[1]
    assert "need 16 images of each class" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "run", "nothing"), "unknown experiment"),
        (("bench", "table", "views", "--results", "absent.sqlite"), "absent.sqlite has no run of views"),
        (("bench", "run", "views", "--seeds", "one"), "'one' is not a valid integer"),
        (("bench", "run", "views", "--seeds", "3-1"), "'3-1' is an empty range"),
        (("bench", "run", "parameters"), "nothing to run"),
        (("datasets", "no-such-folder"), "does not exist"),
    ],
)
def test_wrong_use_is_one_line(prolip, words, message):
    code, out, err = prolip(*words)
    assert (code in (1, 2), out) == (True, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_datasets_lists_and_looks(prolip, tmp_path):
    everything = prolip("datasets")[1]
    assert "oxford_pets" in everything
    assert "1,281,167" in everything
    found = json.loads(prolip("datasets", tmp_path, "--json")[1])
    assert {entry["state"] for entry in found} == {"missing"}
    assert "missing" in prolip("datasets", tmp_path)[1]
