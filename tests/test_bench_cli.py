"""`prolip bench` and `prolip datasets`, as a user types them."""

import json

import pytest
from typer.testing import CliRunner

from prolip.cli import app
from prolip.core import ProlipError
from test_bench import TinyEncoder


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda name, device="auto": TinyEncoder())


def prolip(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=True)


@pytest.fixture
def ran(photos, tmp_path):
    """A small run, and the file of its results."""
    results = tmp_path / "results.sqlite"
    done = prolip(
        "bench", "run", "validation_free", "--data", photos.parent, "--datasets", "photos", "--seeds", "1-2",
        "--shots", "1", "2", "--methods", "zero_shot", "prolip", "--views", "1", "--jobs", "0", "--results",
        results, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["done"] == 5
    return results


def test_list_names_every_experiment():
    found = json.loads(prolip("bench", "list", "--json").stdout)
    assert {"validation_free", "sensitivity", "base_to_new", "umap"} <= {e["name"] for e in found}
    lines = json.loads(prolip("bench", "list", "views", "--json").stdout)
    assert [line["key"] for line in lines][:2] == ["views1", "views2"]
    assert "few_shot_validation" in prolip("bench", "list").stdout


def test_run_then_table_in_every_format(ran):
    for style, word in (
        ("rich", "published"),
        ("markdown", "| Zero-shot |"),
        ("latex", r"\toprule"),
        ("csv", "measured"),
    ):
        shown = prolip("bench", "table", "validation_free", "--results", ran, "--format", style)
        assert shown.exit_code == 0, shown.output
        assert word in shown.stdout
    assert "NOT COMPARABLE" in prolip("bench", "table", "validation_free", "--results", ran).stdout


def test_against_a_line(ran):
    shown = prolip("bench", "table", "validation_free", "--results", ran, "--against", "zero_shot")
    assert "against Zero-shot" in shown.stdout
    wrong = prolip("bench", "table", "validation_free", "--results", ran, "--against", "zero").exception
    assert "did you mean 'zero_shot'?" in str(wrong)


def test_a_dry_run_tells_and_does_nothing(photos, tmp_path, ran):
    words = ("--data", photos.parent, "--datasets", "photos", "--seeds", "1-3", "--shots", "1", "2",
             "--methods", "zero_shot", "prolip", "--views", "1", "--results")  # fmt: skip
    found = json.loads(prolip("bench", "run", "validation_free", *words, ran, "--dry-run", "--json").stdout)
    assert (found["units"], found["done"], found["guessed"]) == (7, 5, 0)
    none = tmp_path / "none.sqlite"
    shown = prolip("bench", "run", "validation_free", *words, none, "--dry-run")
    assert "7 runs, of which 0 are done already" in shown.stderr
    assert "a guess for 7" in shown.stderr
    assert not none.exists()


def test_off_a_terminal_progress_is_told_in_lines(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.cli.bench.LINE_SECONDS", 0.0)
    monkeypatch.setattr("prolip.cli.console.LINE_SECONDS", 0.0)
    words = ("--data", photos.parent, "--datasets", "photos", "--seeds", "1", "--shots", "1", "--methods",
             "prolip", "--views", "1", "--jobs", "0", "--results", tmp_path / "r.sqlite")  # fmt: skip
    shown = prolip("bench", "run", "validation_free", *words)
    assert "encoding photos test: 12 of 12 images" in shown.stderr
    assert "1 of 1 runs done" in shown.stderr
    assert "left" in shown.stderr
    assert "images/s" not in shown.stderr  # the bar's own line, beside this one


def test_run_then_plot(ran, tmp_path):
    pytest.importorskip("matplotlib")
    assert (
        prolip("bench", "plot", "validation_free", "--results", ran, "-o", tmp_path / "p.svg").exit_code == 0
    )
    assert (tmp_path / "p.svg").read_text().lstrip().startswith("<?xml")


def test_a_failed_run_says_so_and_exits_1(photos, tmp_path):
    """Eight shots to train and eight to validate need sixteen images of each class; there are six."""
    words = (
        "--data", photos.parent, "--datasets", "photos", "--seeds", "1", "--shots", "8", "--methods",
        "prolip", "--views", "1", "--jobs", "0", "--results", tmp_path / "r.sqlite",
    )  # fmt: skip
    assert prolip("bench", "run", "few_shot_validation", *words, "--json").exit_code == 1
    shown = prolip("bench", "failures", "few_shot_validation", "--results", tmp_path / "r.sqlite")
    assert "need 16 images of each class" in shown.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "run", "nothing"), "unknown experiment"),
        (("bench", "table", "views", "--results", "absent.sqlite"), "no results"),
        (("bench", "run", "views", "--seeds", "one"), "'one' is not a number"),
        (("bench", "run", "views", "--seeds", "3-1"), "'3-1' is an empty range, did you mean 1-3?"),
        (("bench", "run", "views", "--seeds", "1-9999999999"), "at most 10,000 are taken"),
        (("bench", "run", "parameters"), "nothing to run"),
        (("datasets", "no-such-folder"), "does not exist"),
    ],
)
def test_wrong_use_is_told(words, message):
    error = prolip(*words).exception
    assert isinstance(error, ProlipError)
    assert message in str(error)


def test_datasets_lists_and_looks(tmp_path):
    everything = prolip("datasets").stdout
    assert "oxford_pets" in everything
    assert "1,281,167" in everything
    found = json.loads(prolip("datasets", tmp_path, "--json").stdout)
    assert {entry["state"] for entry in found} == {"missing"}
    assert "missing" in prolip("datasets", tmp_path).stdout


def test_results_that_cannot_be_written_are_told(photos, tmp_path):
    (tmp_path / "file").touch()
    words = ("--data", photos.parent, "--datasets", "photos", "--methods", "zero_shot", "--jobs", "0")
    found = prolip("bench", "run", "validation_free", *words, "--results", tmp_path / "file" / "r.sqlite")
    assert isinstance(found.exception, ProlipError)
    assert "cannot write" in str(found.exception)


def test_more_shots_than_images_are_told(photos, tmp_path):
    words = (
        "--data", photos.parent, "--datasets", "photos", "--seeds", "1", "--shots", "6", "8", "32",
        "--methods", "prolip", "--views", "1", "--jobs", "0", "--results", tmp_path / "r.sqlite", "--json",
    )  # fmt: skip
    with pytest.warns(UserWarning, match="fewer than 8 images: for 8, 32 shots some are drawn"):
        assert prolip("bench", "run", "validation_free", *words).exit_code == 0
