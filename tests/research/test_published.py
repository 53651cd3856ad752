"""The transcription: whatever can be recomputed is; what does not add up is listed by name."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from prolip.research.catalogue import EXPERIMENTS
from prolip.research.catalogue.published import published

PAPER = json.loads(files("prolip.research.catalogue").joinpath("published.json").read_text("utf-8"))
LRS = ("1e-5", "1e-4", "1e-3", "1e-2")
ROUNDING = 0.0101  # two roundings to 0.01: of the parts, and of the whole


def listed(*values):
    """Whether the paper's contradictions hold exactly these values, in any order, to 0.01."""
    wanted = sorted(round(v, 2) for v in values)
    return any(
        sorted(round(p["value"], 2) for p in item["places"]) == wanted for item in PAPER["inconsistencies"]
    )


def rows_of(table):
    """The methods and the datasets that a table has rows of, in the paper's order."""
    methods, datasets = (list(dict.fromkeys(key[i] for key in table.values)) for i in (1, 0))
    return methods, [dataset for dataset in datasets if dataset is not None]


def harmonic(a, b):
    return 2 * a * b / (a + b)


def agree(printed, recomputed):
    return abs(printed - recomputed) <= ROUNDING or listed(printed, recomputed)


@pytest.mark.parametrize("method", rows_of(published("per_dataset"))[0])
def test_table_1_is_the_mean_of_the_tables_per_dataset(method):
    per, mean = published("per_dataset"), published("few_shot_validation")
    _, datasets = rows_of(per)
    assert len(datasets) == 11
    for column in per.columns:
        values = [per.value(method, column, dataset) for dataset in datasets]
        assert agree(mean.value(method, column), sum(values) / 11), column


LAMS = [("variants", f"ProLIP, lam={lam}") for lam in ("1/N", "1/N^2", "0")]
ALPHAS = [("rla", f"CLIP-Adapter, alpha={a}") for a in ("0", "0.1", "0.3", "0.5", "0.7", "0.9")]


@pytest.mark.parametrize(("name", "method"), [*LAMS, *ALPHAS, ("rla", "RLA"), ("rla", "ProLIP")])
def test_rows_are_means_over_learning_rates(name, method):
    table = published(name)
    for column in table.columns:
        values = [table.value(f"{method}, lr={lr}", column) for lr in LRS]
        assert abs(table.value(method, column) - sum(values) / 4) <= ROUNDING


@pytest.mark.parametrize("backbone", ["rn50", "vit"])
def test_base_to_new_means_and_harmonic_means(backbone):
    total, per = published(f"base_to_new_{backbone}"), published(f"base_to_new_per_dataset_{backbone}")
    _, datasets = rows_of(per)
    assert len(datasets) == 11
    for base, new, mean in per.values.values():
        assert agree(mean, harmonic(base, new))
    for method in rows_of(total)[0]:
        rows = [per.values[dataset, method] for dataset in datasets]
        base, new, h1, h2 = total.values[None, method]
        assert abs(base - sum(row[0] for row in rows) / 11) <= ROUNDING
        assert abs(new - sum(row[1] for row in rows) / 11) <= ROUNDING
        assert agree(h1, sum(harmonic(row[0], row[1]) for row in rows) / 11)
        assert abs(h2 - harmonic(base, new)) <= ROUNDING
    for base, new, h in published(f"base_to_new_main_{backbone}").values.values():
        assert agree(h, harmonic(base, new))


def test_averages_over_targets():
    for values in published("test_time").values.values():
        assert abs(values[5] - sum(values[:5]) / 5) <= ROUNDING
        assert abs(values[6] - sum(values[1:5]) / 4) <= ROUNDING
    for *values, average in published("cross_dataset").values.values():
        assert abs(average - sum(values) / 11) <= ROUNDING


def test_parameters_are_products():
    for embed, width, millions in published("parameters").values.values():
        assert round(embed * width / 1e6, 3) == millions


def test_every_table_of_the_paper_is_some_experiments():
    used = {entry.published for entry in EXPERIMENTS.values()}
    used |= {"base_to_new_main_rn50", "tower_parameters"}
    used |= {"base_to_new_per_dataset_rn50", "base_to_new_per_dataset_vit"}
    assert set(PAPER["tables"]) <= used


def test_every_row_has_a_provenance():
    for name in PAPER["tables"]:
        table = published(name)
        assert {method for _, method in table.values} <= table.provenance.keys()


def test_the_page_of_published_figures_is_current(prolip):
    """It is written by `prolip bench published --format markdown`, below its first paragraph."""
    page = Path(__file__).parents[2] / "docs" / "measurements" / "published.md"
    assert page.read_text("utf-8").endswith(prolip("bench", "published", "--format", "markdown")[1])


def test_every_few_shot_table_has_our_method():
    """Beside tables of a search, of features, and of steps at test time."""
    others = {"grid_search", "umap", "timing_test_time", "parameters"}
    assert {
        name for name, one in EXPERIMENTS.items() if all(line.method != "anchored" for line in one.entries)
    } == others
    ours = [line for one in EXPERIMENTS.values() for line in one.entries if line.method == "anchored"]
    assert all("(ours)" in line.label and line.published_row is None for line in ours)
