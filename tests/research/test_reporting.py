"""Tables and figures of made-up results."""

import csv
import dataclasses
import io

import numpy as np
import pytest
from scipy import stats

from prolip import methods
from prolip.core import InputError, UsageError
from prolip.core.errors import UnknownNameError
from prolip.research.catalogue import EXPERIMENTS, find_experiment
from prolip.research.catalogue.experiments import AUTHORS_GRID
from prolip.research.catalogue.published import published, published_rows
from prolip.research.datasets import ELEVEN
from prolip.research.reporting.layouts import Layout, by_shots
from prolip.research.reporting.table import build, parameters
from prolip.research.running.plan import make_plan
from tiny_bench import SMALL, TWO, Nothing, figures, keep, made_up

pytest.importorskip("pandas")
SEEDS = tuple(range(1, 11))


def against(results, key):
    (entry,) = (entry for entry in results.entries if entry.key == key)
    return dataclasses.replace(results, against=entry)


def test_a_figure_is_the_mean_over_settings_seeds_and_datasets():
    def accuracy(run):
        value = 0.5 + 0.1 * (run.dataset == "dtd") + 0.02 * run.seed + 0.04 * (run.options.get("lr") == 1e-2)
        return {"accuracy": value}

    table = build(made_up(SMALL, accuracy, shots=(1, 2), seeds=(1, 2)))
    zero, exact, adam = (figures(table, entry.label) for entry in SMALL.entries)
    assert list(exact) == ["1", "2"]
    assert exact["1"].mean == pytest.approx(58.0)
    assert adam["2"].mean == pytest.approx(60.0)
    assert zero["1"].mean == zero["2"].mean
    assert np.isnan(zero["1"].std)
    assert (zero["1"].published, bool(zero["1"].why)) == (58.89, True)  # two of the eleven datasets


def test_the_deviation_is_the_mean_of_those_of_the_datasets():
    """As in the paper's program; that of the mean over datasets would be smaller, here zero."""
    values = {("dtd", 1): 0.5, ("dtd", 2): 0.6, ("eurosat", 1): 0.9, ("eurosat", 2): 0.8}
    results = made_up(SMALL, lambda run: {"accuracy": values[run.dataset, run.seed]}, seeds=(1, 2))
    assert figures(build(results), "ProLIP, exact")["1"].std == pytest.approx(5.0)


def test_the_deviation_over_learning_rates_is_that_of_their_means():
    entry = find_experiment("siglip")
    rates = {1e-4: 0.7, 1e-3: 0.8, 1e-2: 0.9}

    def accuracy(run):
        return {"accuracy": rates.get(run.options.get("lr"), 0.5) + 0.05 * (run.seed == 2), "chosen": {}}

    table = build(made_up(entry, accuracy, models=entry.models, shots=(16,), seeds=(1, 2), views=1))
    cell = figures(table, "ProLIP, lam=1/N")["16"]
    assert cell.std == pytest.approx(np.std([70, 80, 90]))
    assert cell.published_std == 0.06
    assert np.isnan(figures(table, "Zero-shot")["16"].std)


def validation_free(incomplete=None, **options):
    """The paper's own run of ProLIP and zero-shot, made up."""
    given = {"datasets": ELEVEN, "entries": ("zero_shot", "prolip_adam"), "seeds": SEEDS, **options}
    results = made_up(find_experiment("validation_free"), lambda run: {"accuracy": 0.65}, **given)
    plan = dataclasses.replace(results.plan, incomplete=incomplete or {})
    return build(dataclasses.replace(results, plan=plan))


def test_the_papers_own_setting_is_comparable():
    table = validation_free(models=("open_clip:RN50-quickgelu/openai",), shots=(1, 2))
    assert figures(table, "ProLIP, Adam")["1"].difference == pytest.approx(65.0 - 64.33)
    assert table.reasons() == {}
    assert "difference" in table.render("text")


@pytest.mark.parametrize(
    ("other", "reason", "zero_shot"),
    [
        ({"models": ("offline",)}, "encoder offline instead of RN50", True),
        ({"datasets": ELEVEN[:3]}, "3 of the paper's 11 datasets", True),
        ({"templates": ("a picture of {}.",)}, "other templates", True),
        ({"incomplete": {"dtd": "1 of 47 classes"}}, "DTD is incomplete (1 of 47 classes)", True),
        ({"seeds": (1, 2)}, "2 of 10 seeds", False),  # zero-shot has none
        ({"views": 1}, "1 instead of 10 views", False),
    ],
)
def test_another_setting_is_not_compared_and_says_why(other, reason, zero_shot):
    """The published figure stands apart, below the measured ones, with its reason."""
    table = validation_free(**other)
    zero, adam = (figures(table, label)["1"] for label in ("Zero-shot", "ProLIP, Adam"))
    assert (adam.published, adam.why) == (64.33, (reason,))
    assert np.isnan(adam.difference)
    assert zero.why == ((reason,) if zero_shot else ())
    shown = table.render("text")
    assert "published [1]" in shown
    assert f"[1] not compared: {reason}" in shown
    for style in ("text", "latex", "csv"):
        assert "64.33" in table.render(style)
        assert "64.33" not in table.render(style, with_published=False)
        assert reason not in table.render(style, with_published=False)


def test_nothing_published_stands_beside_other_data():
    """The title names what was used."""
    results = made_up(SMALL, lambda run: {"accuracy": 0.5}, ("mine", "yours"))
    table = build(results)
    assert table.title == "small, on mine, yours"
    assert table.cells["published"].isna().all()
    transfer = made_up(find_experiment("cross_dataset"), lambda run: {"targets": {"mine": 0.5}}, ("mine",))
    assert "ImageNet" not in build(transfer).title


def test_a_figure_of_other_shots_is_not_compared():
    names = ("imagenet", *find_experiment("domain").targets)
    for shots, why in (((4,), ()), ((2,), ("2 instead of 4 shots",))):
        options = {"datasets": names, "entries": ("prolip_adam",), "shots": shots, "seeds": SEEDS}
        results = made_up(
            find_experiment("domain"), lambda run: {"targets": dict.fromkeys(run.datasets, 0.4)}, **options
        )
        cells = build(results).cells
        assert {*cells["why"][cells["published"].notna()]} == {why}


def test_a_transfer_from_another_dataset_is_not_compared():
    chosen = find_experiment("cross_dataset")
    names = ("dtd", "imagenet", *(x for x in chosen.targets if x != "dtd"))
    options = {"datasets": names, "entries": ("zero_shot", "prolip_adam"), "shots": (4,), "seeds": SEEDS}
    table = build(made_up(chosen, lambda run: {"targets": dict.fromkeys(names, 0.5)}, **options))
    why = "trained on DTD instead of ImageNet"
    adam, zero = (figures(table, label) for label in ("ProLIP, Adam", "Zero-shot"))
    assert all(why in cell.why for cell in adam.values() if cell.published > 0)
    assert not any(why in cell.why for cell in zero.values())  # it is not trained


def test_notes_have_the_validation_the_views_and_what_deviates():
    table = build(made_up(find_experiment("variants"), lambda run: {"accuracy": 0.5}, seeds=(1,)))
    assert "validation shots" in table.notes[0]
    assert "10 of the paper's 300 views" in table.notes
    assert any("over learning rates" in note for note in table.notes)


def test_figures_of_another_program_are_not_compared():
    """What lies between two programs is not a difference of ours."""
    rows = {
        (name, row): why for name, entry in EXPERIMENTS.items() for _, row, _, _, why in published_rows(entry)
    }
    for name, row in (
        ("few_shot_validation", "PLOT"), ("base_to_new", "CoOp"), ("domain", "TaskRes"),
        ("normalisation", "RN50 BatchNorm"), ("rla", "CLIP-Adapter, alpha=0"),
        ("complementarity", "ProLIP + TaskRes"),
    ):  # fmt: skip
        assert rows[name, row]
    for name, row in (
        ("validation_free", "ProLIP"), ("few_shot_validation", "LP++"), ("rla", "RLA"),
        ("few_shot_validation", "ProLIP"), ("validation_free", "CLAP"),
    ):  # fmt: skip
        assert rows[name, row] == []


def test_a_line_is_compared_only_with_its_own_options():
    row = published("variants").provenance["ProLIP, lam=1/N, lr=1e-4"]
    chosen = find_experiment("variants")
    (line,) = (entry for entry in chosen.entries if entry.key == "lam1/N_lr1e-4")
    assert row.differences(line, chosen) == []
    for other in (
        {"options": {**line.options, "lr": 1e-3}}, {"averaged_over": ({"lr": 1e-4}, {"lr": 1e-3})},
        {"template": "photo"}, {"validation": "shots"}, {"method": "rla"}, {"scale": 0.5},
        {"view_area": 0.08},
    ):  # fmt: skip
        assert len(row.differences(dataclasses.replace(line, **other), chosen)) == 1


def test_missing_runs_put_a_star_on_the_figure():
    whole = made_up(SMALL, lambda run: {"accuracy": 0.5}, ("dtd",), entries=("prolip",), seeds=(1, 2))
    table = build(keep(whole, lambda run: run.seed == 1))
    assert "50.00*" in table.render("text")
    assert any("1 of 2 runs are not done" in note for note in table.notes)


def test_any_table_of_shots_is_shown_per_dataset():
    results = made_up(SMALL, lambda run: {"accuracy": 0.5 + 0.1 * (run.dataset == "dtd")}).per_dataset()
    means = {name: figures(build(results), "ProLIP, exact", name)["1"].mean for name in ("DTD", "EuroSAT")}
    assert means == pytest.approx({"DTD": 60.0, "EuroSAT": 50.0})
    with pytest.raises(UsageError):
        made_up(find_experiment("domain"), lambda run: {"targets": {}}).per_dataset()


def test_per_dataset_lines_are_compared_one_by_one():
    chosen = find_experiment("per_dataset")
    table = build(made_up(chosen, lambda run: {"accuracy": 0.5}, entries=("zero_shot",)))
    dtd = figures(table, "Zero-shot", "DTD")["1"]
    assert (dtd.published, dtd.difference) == (42.69, pytest.approx(50 - 42.69))
    assert [*dict.fromkeys(table.cells["group"])] == ["DTD", "EuroSAT"]


def test_base_to_new_has_both_total_harmonic_means():
    halves = {"dtd": (0.7, 0.5), "eurosat": (0.9, 0.6)}
    chosen = find_experiment("base_to_new")
    table = build(
        made_up(
            chosen,
            lambda run: dict(zip(("base", "new"), halves[run.dataset], strict=True)),
            entries=("prolip_adam",),
            shots=(4,),
        )
    )
    total, dtd = figures(table, "ProLIP, Adam"), figures(table, "ProLIP, Adam", "DTD")

    def harmonic(a, b):
        return 2 * a * b / (a + b)

    assert total["base"].mean == pytest.approx(80)
    assert total["H_t1"].mean == pytest.approx((harmonic(70, 50) + harmonic(90, 60)) / 2)
    assert (total["H_t2"].mean, total["H_t2"].published) == (pytest.approx(harmonic(80, 55)), 72.31)
    assert (dtd["HM"].mean, dtd["HM"].published) == (pytest.approx(harmonic(70, 50)), 63.29)


def test_targets_average_what_was_not_trained_on():
    accuracies = {"imagenet": 0.6, "imagenet_v2": 0.5, "imagenet_a": 0.2}
    options = {"entries": ("prolip_adam",), "shots": (4,), "seeds": SEEDS}
    results = made_up(
        find_experiment("domain"), lambda run: {"targets": accuracies}, datasets=tuple(accuracies), **options
    )
    cells = figures(build(results), "ProLIP, Adam")
    assert cells["OOD"].mean == pytest.approx(35)
    assert cells["average"].mean == pytest.approx(100 * 1.3 / 3)
    assert (cells["ImageNet"].published, cells["OOD"].published) == (62.55, 43.20)
    assert cells["ImageNet"].difference == pytest.approx(60 - 62.55)
    assert np.isnan(cells["OOD"].difference)  # two of four variants


def test_formats_hold_the_same_figures():
    table = build(made_up(SMALL, lambda run: {"accuracy": 0.6543}, datasets=ELEVEN, entries=("zero_shot",)))
    row = next(csv.DictReader(io.StringIO(table.render("csv"))))
    assert [float(row[name]) for name in ("mean", "published", "difference")] == [65.43, 58.89, 6.54]
    assert "Zero-shot & 65.43 \\\\\n\\quad \\textit{published} & 58.89" in table.render("latex")
    with pytest.raises(UnknownNameError):
        table.render("word")


def ranked(**options):
    """Three lines on two datasets: 80, 70 and 60 % on average."""
    level = {"zero_shot": 0.7, "prolip": 0.8, "adam": 0.6}

    def result(run):
        value = level[run.entry] + 0.02 * (run.dataset == "dtd") + 0.01 * (run.seed == 2)
        return {"accuracy": value, "calibration_error": 1 - level[run.entry]}

    return made_up(SMALL, result, seeds=(1, 2), **options)


def test_latex_marks_the_best_and_the_second_best():
    text = build(ranked()).render("latex")
    assert r"ProLIP, exact & \textbf{81.50 $\pm$ 0.50} & \textbf{20.00" in text
    assert r"Zero-shot & \underline{71.00} & \underline{30.00}" in text  # zero-shot has one draw
    assert text.count("{") == text.count("}")
    assert r"\%" in text.split(r"\caption")[1].splitlines()[0]
    assert r"\toprule" in text


def test_a_gain_on_unfinished_lines_has_a_star():
    part = keep(ranked(), lambda run: run.entry != "prolip" or run.dataset != "dtd")
    assert "+10.50 ± 6.35*" in build(against(part, "zero_shot")).render("text")


def test_the_difference_to_another_line_is_paired_by_dataset_and_seed():
    """Against scipy's paired test, on seeds that move both lines far more than they differ."""
    rng = np.random.default_rng(0)
    noise = {(name, seed): rng.normal() for name in TWO for seed in range(1, 5)}

    def accuracy(run):
        adam = run.options.get("solver") == "adam"
        value = 0.5 + 0.1 * run.seed + adam * (0.02 + 0.002 * noise[run.dataset, run.seed])
        return {"accuracy": value}

    table = build(against(made_up(SMALL, accuracy, seeds=(1, 2, 3, 4)), "prolip"))
    gains = [2 + 0.2 * (noise["dtd", seed] + noise["eurosat", seed]) / 2 for seed in range(1, 5)]
    low, high = stats.ttest_1samp(gains, 0).confidence_interval(0.95)
    adam, exact, zero = (
        figures(table, label)["1"] for label in ("ProLIP, Adam", "ProLIP, exact", "Zero-shot")
    )
    assert adam.gain == pytest.approx(np.mean(gains))
    assert adam.interval == pytest.approx((high - low) / 2)
    assert np.isnan(exact.gain)  # the line itself
    assert zero.gain == pytest.approx(100 * (0.5 + 0.1) - 100 * (0.5 + 0.1 * 2.5))
    shown = table.render("latex")
    assert rf"\textbf{{+{adam.gain:.2f} $\pm$ {adam.interval:.2f}}}" in shown
    assert rf"& {zero.gain:.2f} $\pm$ {zero.interval:.2f} \\" in shown  # within noise: not bold


def test_every_run_is_a_row(tmp_path):
    results = ranked(entries=("prolip",))
    assert results.save(tmp_path / "rows.csv") == 4
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [(row["dataset"], row["seed"]) for row in rows][:2] == [("dtd", "1"), ("dtd", "2")]
    assert [float(row["score"]) for row in rows] == pytest.approx([0.82, 0.83, 0.8, 0.81])


def test_parameters_are_counted_without_a_run():
    table = parameters(find_experiment("parameters"))
    known = table.cells[table.cells["published"].notna()]
    assert len(known) == 4 + 9
    assert (abs(known["mean"] - known["published"]) <= 0.0075).all()
    assert 1.048576 in table.cells["mean"][table.cells["label"].str.startswith("rla")].tolist()


def halved(results):
    """A layout of a user's own."""
    values = by_shots(results)
    return values.assign(value=values["value"] / 2)


HALVED = Layout(halved)


def test_a_layout_of_ones_own():
    experiment = dataclasses.replace(SMALL, layout=f"{__name__}:HALVED")
    table = build(made_up(experiment, lambda run: {"accuracy": 0.5}))
    assert figures(table, "Zero-shot")["1"].mean == 25.0


def test_a_loss_of_accuracy_is_that_against_the_authors_rate():
    entry = find_experiment("domain_lr")

    def result(run):
        value = 0.5 if run.options.get("lr") == 1e-2 else 0.6
        return {"targets": dict.fromkeys(run.datasets, value)}

    table = build(made_up(entry, result, (*entry.datasets, *entry.targets), models=entry.models))
    assert "OOD difference" not in figures(table, "ProLIP")
    loss = figures(table, "ProLIP, lr=1e-2")["OOD difference"]
    assert (loss.mean, loss.published) == (pytest.approx(-10), -0.18)


# The table of experiments


def test_every_published_row_that_is_named_exists():
    for entry in EXPERIMENTS.values():
        if entry.published is None:
            continue
        paper = published(entry.published)
        for row in entry.entries:
            name = row.published_row
            if name is not None and row.trained and "{model}" not in name:
                assert name in {method for _, method in paper.values}, f"{entry.name}: {name}"


def test_lines_have_keys_and_options_of_their_own_and_exact_ones_no_published_figure():
    for entry in EXPERIMENTS.values():
        assert len({row.key for row in entry.entries}) == len(entry.entries), entry.name
        for row in entry.entries:
            for options in (*row.averaged_over, *row.grid):
                method = methods.create(row.method, **{**row.options, **options})
                exact = getattr(method, "solver", None) == "exact" or row.method == "cross_modal"
                assert not (exact and row.published_row and entry.published), f"{entry.name}: {row.label}"


def test_options_of_single_datasets_reach_their_runs_and_are_known():
    for entry in EXPERIMENTS.values():
        for row in entry.entries:
            for name, options in row.by_dataset.items():
                assert name in ELEVEN
                methods.create(row.method, **row.options, **options)
    some = {"datasets": ("imagenet", "dtd"), "entries": ("prograd",), "shots": (8,), "seeds": (1,)}
    first, second = make_plan(find_experiment("validation_free"), Nothing(), **some).runs
    assert first.options["epochs"] == 50
    own = {"teacher": "a texture of {}.", "init": "a texture of", "late_conflict": 0.8}
    assert second.options == {"view_area": 0.08, **own}


def test_the_grid_is_the_authors_in_their_precision_where_it_matters():
    assert len(AUTHORS_GRID) == 49
    assert AUTHORS_GRID[0] == {"lr": 1e-2, "lam": 10.0}
    assert AUTHORS_GRID[-1]["lam"] == 0.0
    assert AUTHORS_GRID[-1]["lr"] == pytest.approx(1e-8)
    halves = [pair for pair in AUTHORS_GRID if pair.get("precision") == "float16"]
    assert len(halves) == 25
    assert all(pair["lam"] == 0 or pair["lr"] <= 1e-6 for pair in halves)


# Figures


def measured(run):
    """A result with everything that some protocol measures."""
    value = 0.4 + 0.02 * (run.shots or 32) ** 0.5 + 0.01 * (run.seed % 3)
    points = [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]
    return {
        "accuracy": value,
        "base": value,
        "new": value - 0.1,
        **({"targets": dict.fromkeys(run.datasets, value)} if run.targets else {}),
        "chosen": (run.grid or (run.options,))[0],
        "labels": [0, 1, 0],
        "classes": ["a", "b"],
        **{f"{name}_{stage}": value for name in ("accuracy", "purity") for stage in ("before", "after")},
        "points_before": points,
        "points_after": points,
        "seconds": value,
    }


@pytest.mark.parametrize("name", [name for name, entry in EXPERIMENTS.items() if entry.entries])
def test_every_table_and_figure_of_the_paper_comes_out(tmp_path, name):
    pytest.importorskip("matplotlib")
    from prolip.research.reporting.figures import draw, save

    entry = find_experiment(name)
    seeds = entry.seeds[:1] if name == "grid_search" else entry.seeds
    options = {"models": entry.models, "shots": entry.shots, "seeds": seeds, "views": 300}
    results = made_up(entry, measured, (*entry.datasets, *entry.targets), **options)
    table = build(results)
    assert table.cells["mean"].notna().all()
    if any(not why for *_, why in published_rows(entry)):
        assert table.cells["difference"].notna().any()
    for style in ("text", "latex", "csv"):
        assert len(table.render(style).splitlines()) > table.cells["label"].nunique()
    save(draw(results), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["validation_free", "views", "complementarity", "base_to_new", "variants"])
def test_models_are_not_mixed(name):
    """Two models that differ by 20 points: every table and every panel shows one of them."""
    pytest.importorskip("matplotlib")
    from prolip.research.reporting.figures import draw

    entry = find_experiment(name)
    keys = tuple(row.key for row in entry.entries if row.method.startswith(("zero_shot", "prolip")))

    def result(run):
        value = 0.5 + 0.2 * ("ViT" in run.model)
        return {"accuracy": value, "base": value, "new": value}

    results = made_up(entry, result, models=("RN50", "ViT-B/16"), entries=keys, shots=(1, 2), seeds=(1, 2))
    cells = build(results).cells
    for model, value in (("RN50", 50), ("ViT-B/16", 70)):
        mine = cells[cells["group"].str.startswith(model)]
        assert len(mine) == len(cells) / 2
        assert mine["mean"].to_numpy() == pytest.approx(value)
    first, second = draw(results).axes
    assert (first.get_title(), second.get_title()) == ("RN50", "ViT-B/16")
    if name != "base_to_new":  # which has bars
        for axes, value in ((first, 50), (second, 70)):
            shown = [y for line in axes.lines for y in line.get_ydata()]
            expected = 0.0 if name == "complementarity" else value
            assert shown == pytest.approx([expected] * len(shown))


def test_an_unfinished_figure_says_so():
    pytest.importorskip("matplotlib")
    from prolip.research.reporting.figures import draw

    whole = made_up(SMALL, lambda run: {"accuracy": 0.5}, entries=("prolip", "adam"), shots=(1, 2))
    assert draw(whole)._supxlabel is None
    figure = draw(keep(whole, lambda run: run.entry != "adam" or run.dataset == "dtd"))
    assert "Unfinished: 4 of 12 runs are missing" in figure._supxlabel.get_text().replace("\n", " ")
    with pytest.raises(InputError, match="nothing to draw"):
        draw(keep(whole, lambda run: False))
