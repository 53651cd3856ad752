"""Experiments from plan to table, on a tiny encoder and a few coloured pictures."""

import csv
import dataclasses
import functools
import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import stats

from pictures import blotch
from prolip import methods
from prolip.core import Head, InputError, UsageError
from prolip.data.sampling import sample_support
from prolip.encoders import Encoder, Preprocess
from prolip.research.catalogue import EXPERIMENTS, experiment
from prolip.research.catalogue.experiment import Experiment
from prolip.research.catalogue.lines import GRID, line
from prolip.research.catalogue.published import published
from prolip.research.datasets import ELEVEN, read_dataset
from prolip.research.protocols.protocols import PROTOCOLS, Setting, Trial, per_image, transfer
from prolip.research.protocols.tower_tasks import load_once, tower_task
from prolip.research.reporting import figures
from prolip.research.reporting.build_table import build
from prolip.research.reporting.parameters import parameters
from prolip.research.reporting.render import render
from prolip.research.reporting.results import Results
from prolip.research.running.execute import Executor
from prolip.research.running.plan import (
    Choices,
    Plan,
    PlannedUnit,
    expand,
    make_plan,
    missing_methods,
    settle,
)
from prolip.research.running.prepare import prepare
from prolip.research.running.problem_file import is_whole, read_problem
from prolip.research.running.result_key import result_key
from prolip.research.running.result_store import ResultStore, UnitResult
from prolip.research.running.run import Resources, forecast, run
from prolip.research.running.unit import Unit
from prolip.research.running.unit_loop import Status, local_pool, run_plan


class TinyEncoder(Encoder):
    """Mean colours through a fixed random map."""

    name = "tiny"
    fingerprint = "tiny-1"
    scale = 10.0
    preprocess = Preprocess(16, (0.5,) * 3, (0.5,) * 3)
    device = "cpu"

    def __init__(self):
        self.head = Head(np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32) / 3)
        self.text_head = Head(np.eye(6, dtype=np.float32))

    def encode(self, pixels):
        corners = pixels.reshape(-1, 2, 8, 2, 8, 3).mean(axis=(2, 4), dtype=np.float32) / 255
        return corners.reshape(len(pixels), 12) - np.float32(0.4)

    def encode_text(self, prompts):
        rows = [np.random.default_rng(sum(map(ord, prompt))).normal(size=6) for prompt in prompts]
        return np.stack(rows).astype(np.float32)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda name, device="auto": TinyEncoder())


SMALL = Experiment(
    "small",
    "A small experiment",
    "nowhere",
    "few_shot",
    (
        line("zero_shot", "Zero-shot", "zero_shot", paper="CLIP (0-shot)"),
        line("prolip", "ProLIP, exact", "prolip", {"lam": "1/N"}, paper="ProLIP"),
        line(
            "adam",
            "ProLIP, Adam",
            "prolip",
            {"lam": "1/N", "solver": "adam", "epochs": 5},
            over=({"lr": 1e-3}, {"lr": 1e-2}),
        ),
    ),
    shots=(1, 2),
    seeds=(1, 2),
    views=2,
    published="validation_free",
)


def planned(photos, store, chosen=SMALL, **choices):
    """A plan in a store: its number, its files, and itself."""
    plan = make_plan(chosen, Choices(datasets=("photos",), **choices), photos.parent)
    prepared = prepare([p.unit for p in plan.units], photos.parent)
    return store.add_plan(plan, prepared.keys), prepared, plan


def accuracies(store, plan):
    return {u.planned.unit.as_json(): u.result["accuracy"] for u in store.results(plan)}


def unit_of(method="prolip", protocol="few_shot", seed=1):
    return Unit(protocol, "d", "m", Trial(Setting(method), seed=seed))


def plan_of(*units):
    return Plan(SMALL, Choices(), {}, tuple(PlannedUnit("prolip", "m", unit) for unit in units))


# Units, plans and preparation


def test_a_plan_has_every_combination_once(photos):
    settled = settle(SMALL, Choices(datasets=("photos",)), photos.parent)
    units = [p.unit for p in expand(SMALL, settled).units]
    assert settled.models == ("offline",)  # a folder of images: not the paper's data, so not its model
    assert len(units) == 1 + 4 + 8  # zero-shot once; shots x seeds; both learning rates
    assert len({unit.as_json() for unit in units}) == len(units)
    assert all(Unit.from_json(unit.as_json()) == unit for unit in units)


def test_choices_narrow_a_plan_and_survive_the_store(photos, tmp_path):
    choices = Choices(datasets=("photos",), lines=("prolip",), shots=(2, None), seeds=(5,), views=1)
    settled = settle(SMALL, choices, photos.parent)
    units = [p.unit for p in expand(SMALL, settled).units]
    assert [(u.trial.shots, u.trial.seed, u.trial.setting.views) for u in units] == [(2, 5, 1), (None, 5, 1)]
    plan = expand(SMALL, settled)
    assert Plan.from_json(json.loads(json.dumps(plan.as_json())), plan.units) == plan


def test_unknown_lines_and_datasets_are_named(photos, tmp_path):
    with pytest.raises(UsageError, match="did you mean 'prolip'"):
        make_plan(SMALL, Choices(datasets=("photos",), lines=("prolipp",)), photos.parent)
    with pytest.raises(UsageError, match="unknown dataset"):
        settle(SMALL, Choices(datasets=("photo",)), photos.parent)
    with pytest.raises(InputError, match="none of the datasets"):
        settle(SMALL, Choices(), tmp_path)


def test_a_key_knows_its_pictures(photos):
    settled = settle(SMALL, Choices(datasets=("photos",)), photos.parent)
    units = [p.unit for p in expand(SMALL, settled).units]
    unit = next(u for u in units if u.trial.setting.method == "prolip" and u.trial.shots == 1)
    before = prepare(units, photos.parent).keys[units.index(unit)]
    assert prepare([unit], photos.parent).keys == [before]  # whatever else is prepared with it

    train = read_dataset("photos", photos.parent).splits["train"]
    drawn = sample_support(train.labels, 1, unit.trial.seed)
    bystander = next(path for i, path in enumerate(train.images) if i not in drawn)
    blotch((1, 2, 3), 1).save(bystander)
    assert prepare([unit], photos.parent).keys == [before]
    blotch((1, 2, 3), 2).save(train.images[drawn[0]])
    assert prepare([unit], photos.parent).keys != [before]


def test_a_key_knows_its_code_and_libraries(monkeypatch):
    """Another version of a library is another row; those of the towers count where a tower runs."""
    from prolip.research.running import result_key as module

    plain, tower = unit_of("prolip"), unit_of("zero_shot", "test_time_prolip")

    def keys(**other):
        module._version.cache_clear()
        known = {"numpy": "2.0", "scipy": "1.14", "onnxruntime": "1.20", "torch": "2.6", "peft": "0.15"}
        monkeypatch.setattr(module, "_installed", lambda name: (known | other).get(name, "absent"))
        return result_key(plain, "inputs"), result_key(tower, "inputs")

    before = keys()
    assert before == keys()
    assert result_key(plain, "other inputs") != before[0]
    for library in ("numpy", "scipy", "onnxruntime"):
        assert not set(keys(**{library: "99"})) & set(before)
    for library in ("torch", "open_clip_torch", "transformers", "peft"):
        after = keys(**{library: "99"})
        assert after[0] == before[0]
        assert after[1] != before[1]
    monkeypatch.setattr(module, "_SOURCES", (*module._SOURCES, "demo.py"))
    assert not set(keys()) & set(before)
    module._version.cache_clear()


def test_problems_come_back_from_their_files(photos, tmp_path):
    with ResultStore(tmp_path / "r.sqlite") as results:
        _, prepared, _ = planned(photos, results)
    file = prepared.files["offline", "photos"]
    mapped, copied = read_problem(str(file)), read_problem(np.fromfile(file, np.uint8))
    for problem in (mapped, copied):
        assert problem.classes == ("blue", "green", "red")
        assert problem.splits["train"].x.shape[0] == 2
        assert len(problem.splits["test"].labels) == 12
        assert problem.texts["own"].features.shape == (1, 3, 6)
    assert np.array_equal(mapped.splits["train"].x, copied.splits["train"].x)


# The store


def test_two_runners_share_the_work(tmp_path):
    units = [unit_of(seed=k) for k in range(6)]
    with ResultStore(tmp_path / "r.sqlite") as one, ResultStore(tmp_path / "r.sqlite") as two:
        plan = one.add_plan(plan_of(*units), list("abcdef"))
        first, second = one.claim(plan, 4), two.claim(plan, 4)
        assert len(first) == 4
        assert len(second) == 2
        assert not {key for key, _ in first} & {key for key, _ in second}
        assert one.claim(plan, 1) == []


def test_units_of_a_dead_runner_are_taken_over(tmp_path, monkeypatch):
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan = store.add_plan(plan_of(unit_of()), ["a"])
        with ResultStore(tmp_path / "r.sqlite") as gone:
            finished = subprocess.Popen([sys.executable, "-c", ""])
            finished.wait()
            host = gone.owner.rsplit(":", 2)[0]
            gone.owner = f"{host}:{finished.pid}:dead"
            assert gone.claim(plan, 1)
            assert store.claim(plan, 1)  # its process is no more
            gone.owner = "elsewhere:1:x"
            store.release()
            assert gone.claim(plan, 1)
            assert not store.claim(plan, 1)  # on another machine, and it spoke just now
            monkeypatch.setattr("prolip.research.running.result_store.STALE", -1.0)
            assert store.claim(plan, 1)


def test_a_result_is_written_once(tmp_path):
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan = store.add_plan(plan_of(unit_of()), ["a"])
        store.claim(plan, 1)
        store.finish("a", {"accuracy": 0.5}, 1.0)
        store.finish("a", {"accuracy": 0.7}, 1.0)
        store.fail("a", "too late")
        assert store.results(plan)[0].result == {"accuracy": 0.5}
        again = store.add_plan(plan_of(unit_of()), ["a"])
        assert store.counts(again).done == 1


def test_a_unit_that_kills_its_process_fails_in_the_end(tmp_path):
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan = store.add_plan(plan_of(unit_of()), ["a"])
        for _ in range(3):
            assert store.claim(plan, 1)
            store.died("a", "exit code -9")
        assert not store.claim(plan, 1)
        assert "died 3 times: exit code -9" in store.results(plan)[0].error
        assert store.retry(plan) == 1
        assert store.claim(plan, 1)


# Running


def test_results_do_not_depend_on_who_runs_them(photos, tmp_path):
    with ResultStore(tmp_path / "here.sqlite") as here, ResultStore(tmp_path / "there.sqlite") as there:
        plan, prepared, _ = planned(photos, here)
        assert run_plan(here, plan, prepared.files_of, local_pool(0)).done == 13
        other, prepared, _ = planned(photos, there)
        assert run_plan(there, other, prepared.files_of, local_pool(2)).done == 13
        assert accuracies(here, plan) == accuracies(there, other)


def test_a_failure_is_a_row_and_the_rest_goes_on(photos, tmp_path):
    broken = Experiment(
        "broken",
        "",
        "",
        "few_shot",
        (line("bad", "Bad", "prolip", {"lam": -1.0}), line("good", "Good", "prolip", {"lam": 1.0})),
        shots=(1,),
        seeds=(1,),
        views=1,
    )
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan, prepared, _ = planned(photos, store, broken)
        counts = run_plan(store, plan, prepared.files_of, local_pool(0))
        assert (counts.done, counts.failed) == (1, 1)
        notes = build(Results(*store.last_plan("broken"))).notes
        assert any("Bad: 1 runs failed" in note and "lam" in note for note in notes)
        assert store.retry(plan) == 1
        assert run_plan(store, plan, prepared.files_of, local_pool(0)).failed == 1


def test_a_finished_plan_runs_nothing(photos, tmp_path):
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan, prepared, _ = planned(photos, store)
        run_plan(store, plan, prepared.files_of, local_pool(0))
        again, prepared, _ = planned(photos, store)
        assert store.counts(again).waiting == 0

        def refuse(unit):
            raise AssertionError("nothing is left to run")

        run_plan(store, again, refuse, local_pool(0))


def test_an_experiment_that_is_edited_keeps_the_results_of_its_last_run(photos, tmp_path, monkeypatch):
    """The table shows what was run, from the store; nothing is planned to be shown."""
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan, prepared, made = planned(photos, store)
        run_plan(store, plan, prepared.files_of, local_pool(0))
    before = build(Results.read("small", tmp_path / "r.sqlite"))
    edited = dataclasses.replace(
        SMALL, lines=(line("prolip", "Renamed", "prolip", {"lam": 0.5}),), shots=(4,)
    )
    monkeypatch.setitem(EXPERIMENTS, "small", edited)
    monkeypatch.setattr("prolip.research.running.plan.expand", None)
    found = Results.read("small", tmp_path / "r.sqlite")
    assert found.plan == made
    assert build(found) == before
    assert all(cell.missing == 0 for row in before.rows for cell in row.cells)


def test_a_unit_that_two_lines_share_is_run_once_and_shown_in_both(photos, tmp_path):
    same = {"lam": "1/N"}
    twins = dataclasses.replace(SMALL, lines=tuple(line(x, x, "prolip", same) for x in "ab"), name="twins")
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan, prepared, made = planned(photos, store, twins, shots=(1,), seeds=(1,))
        assert (len(made.units), store.counts(plan).total) == (2, 1)
        assert run_plan(store, plan, prepared.files_of, local_pool(0)).done == 1
        first, second = build(Results(*store.last_plan("twins"))).rows
    assert first.cells == second.cells


def test_a_damaged_problem_file_is_made_again(photos, tmp_path):
    """A flipped byte in a tensor, and half a file: the checksum tells, a reader gets one line."""
    units = [p.unit for p in make_plan(SMALL, Choices(("photos",)), photos.parent).units]
    prepared = prepare(units, photos.parent)
    file = prepared.files["offline", "photos"]
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    for damaged in (bytes(flipped), whole[: len(whole) // 2], b""):
        file.write_bytes(damaged)
        again = prepare(units, photos.parent)
        assert again.keys == prepared.keys
        assert is_whole(file)
    file.write_bytes(whole[: len(whole) // 2])
    outcome = Executor().run(("key", units[0].as_json(), prepared.files_of(units[0])))
    assert outcome.result is None
    assert outcome.error.startswith("InputError: ")
    assert "is damaged" in outcome.error


def test_the_device_reaches_the_towers_of_a_worker(photos, monkeypatch):
    devices = []

    def load(name, device="auto"):
        devices.append(device)
        return TinyEncoder()

    unit = Unit("test_time_prolip", "photos", "offline", Trial(Setting("zero_shot"), shots=1))
    prepared = prepare([unit], photos.parent)
    load_once.cache_clear()
    monkeypatch.setattr("prolip.encoders.load", load)
    with local_pool(0, "cuda:7") as pool:
        monkeypatch.setitem(PROTOCOLS, "test_time_prolip", functools.partial(per_image, views=2))
        pool.submit(("key", unit.as_json(), prepared.files_of(unit)))
        (outcome,) = pool.outcomes(0.0)
    load_once.cache_clear()
    assert outcome.error is None
    assert devices == ["cuda:7"]


class Mine(methods.get("zero_shot")):
    """A method of a user's own."""


def test_any_method_can_be_a_line(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(methods.REGISTRY, "mine", "test_bench:Mine")
    resources = Resources(photos.parent, tmp_path / "r.sqlite", jobs=0)
    choices = Choices(("photos",), lines=("zero_shot", "mine", "rla"), shots=(1,), seeds=(1,), views=1)
    assert run(make_plan(SMALL, choices, photos.parent), resources).done == 3
    zero, mine, rla = build(Results.read("small", resources.results)).rows
    assert (mine.label, rla.label) == ("mine", "rla")
    assert mine.cells[0].measured == zero.cells[0].measured


def test_a_forecast_counts_what_is_done_and_times_the_rest(photos, tmp_path):
    resources = Resources(photos.parent, tmp_path / "r.sqlite", jobs=2)
    half, whole = (
        make_plan(SMALL, Choices(("photos",), lines=("prolip",), seeds=seeds), photos.parent)
        for seeds in ((1,), (1, 2))
    )
    first = forecast(half, resources)
    assert (first.units, first.done, first.guessed) == (2, 0, 2)
    assert not resources.results.exists()  # looked, and wrote nothing
    with ResultStore(resources.results) as store:
        plan = store.add_plan(half, ["a", "b"])
        for key, _ in store.claim(plan, 2):
            store.finish(key, {"accuracy": 0.5}, seconds=8.0)
    then = forecast(whole, resources)
    assert (then.units, then.done, then.guessed) == (4, 2, 0)
    assert then.seconds == 2 * 8.0 / 2


def test_the_time_left_goes_by_the_units_of_the_same_line(tmp_path):
    """Two quick units are done and one slow one: two slow ones are left, at the pace until now."""
    quick, slow = ([unit_of(method, seed=k) for k in range(3)] for method in ("zero_shot", "prolip"))
    plan = Plan(
        SMALL, Choices(), {}, tuple(PlannedUnit(u.trial.setting.method, "m", u) for u in quick + slow)
    )
    with ResultStore(tmp_path / "r.sqlite") as store:
        number = store.add_plan(plan, list("abcdef"))
        before = store.counts(number)
        store.claim(number, 4)
        for key, seconds in zip("abcd", (1.0, 1.0, 1.0, 9.0), strict=True):
            store.finish(key, {}, seconds)
        counts = store.counts(number)
    assert (counts.spent, counts.left) == (12.0, 18.0)
    assert Status(counts, before, seconds=6.0).seconds_left == 9.0  # two at a time
    assert Status(before, before, seconds=6.0).seconds_left is None


SWEEP = """
import sys
from prolip.research.running.result_store import ResultStore
from prolip.research.running.unit_loop import local_pool, run_plan
if __name__ == "__main__":
    path, plan, file = sys.argv[1:]
    with ResultStore(path) as store:
        print("ready", flush=True)
        run_plan(store, int(plan), lambda unit: {"photos": file}, local_pool(1))
"""


def test_killed_and_started_again_it_ends_the_same(photos, tmp_path):
    with ResultStore(tmp_path / "whole.sqlite") as whole:
        plan, prepared, _ = planned(photos, whole, seeds=tuple(range(1, 5)))
        run_plan(whole, plan, prepared.files_of, local_pool(0))
        expected = accuracies(whole, plan)
    script, path = tmp_path / "sweep.py", tmp_path / "killed.sqlite"
    script.write_text(SWEEP)
    with ResultStore(path) as store:
        plan, prepared, _ = planned(photos, store, seeds=tuple(range(1, 5)))
        file = str(prepared.files["offline", "photos"])
        command = [sys.executable, str(script), str(path), str(plan), file]
        for done in (1, 5):
            sweep = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            deadline = time.monotonic() + 60
            while store.counts(plan).done < done and time.monotonic() < deadline:
                time.sleep(0.02)
            os.kill(sweep.pid, signal.SIGKILL)
            sweep.wait()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        assert accuracies(store, plan) == expected


# Tables


def collect_with(chosen, settled, accuracy):
    """Results made up by a function of the unit."""
    plan = expand(chosen, settled)
    return Results(plan, [UnitResult(p, "done", accuracy(p.unit)) for p in plan.units])


def test_a_table_is_the_mean_over_settings_datasets_and_seeds():
    settled = Choices(("dtd", "eurosat"), ("RN50",), (), (1, 2), (1, 2), 10)

    def accuracy(unit):
        value = (
            0.5
            + 0.1 * (unit.dataset == "dtd")
            + 0.02 * unit.trial.seed
            + 0.04 * (unit.trial.setting.options.get("lr") == 1e-2)
        )
        return {"accuracy": value}

    table = build(collect_with(SMALL, settled, accuracy))
    zero, exact, adam = table.rows
    assert table.columns == ("1", "2")
    assert exact.cells[0].measured == pytest.approx(58.0)
    assert exact.cells[0].std == pytest.approx(1.0)  # 57 and 59 over the seeds
    assert adam.cells[1].measured == pytest.approx(60.0)
    assert exact.cells[0].published == 64.33
    assert exact.cells[0].difference is None  # two of the eleven datasets
    assert zero.cells[0].measured == zero.cells[1].measured
    assert any(note.startswith("NOT COMPARABLE") and "other datasets (2" in note for note in table.notes)


def test_the_papers_own_setting_is_comparable():
    settled = Choices(ELEVEN, ("open_clip:RN50-quickgelu/openai",), (), (1, 2), (1, 2), 300)
    table = build(collect_with(SMALL, settled, lambda unit: {"accuracy": 0.65}))
    assert table.rows[1].cells[0].difference == pytest.approx(65.0 - 64.33)
    assert not any(note.startswith("NOT COMPARABLE") for note in table.notes)


def test_another_encoder_is_not_comparable_whatever_the_data():
    settled = Choices(ELEVEN, ("offline",), (), (1, 2), (1, 2), 300)
    table = build(collect_with(SMALL, settled, lambda unit: {"accuracy": 0.65}))
    assert table.rows[1].cells[0].difference is None
    assert any("another encoder (offline; the paper has RN50)" in note for note in table.notes)
    assert "n/c" in render(table, "markdown")


def test_missing_runs_put_a_star_on_the_figure():
    settled = Choices(("dtd",), ("RN50",), ("prolip",), (1,), (1, 2), 10)
    plan = expand(SMALL, settled)
    done, waiting = plan.units
    table = build(
        Results(plan, [UnitResult(done, "done", {"accuracy": 0.5}), UnitResult(waiting, "waiting")])
    )
    assert "50.00*" in render(table, "markdown")
    assert any("1 of 2 runs are not done" in note for note in table.notes)


def test_per_dataset_lines_are_compared_one_by_one():
    settled = Choices(("dtd", "photos"), ("RN50",), ("zero_shot",), (1,), (1,), 10)
    table = build(collect_with(experiment("per_dataset"), settled, lambda unit: {"accuracy": 0.5}))
    dtd, photos = table.rows
    assert dtd.cells[0].published == 42.69
    assert dtd.cells[0].difference == pytest.approx(50 - 42.69)
    assert photos.cells[0].published is None


def test_base_to_new_has_both_total_harmonic_means():
    settled = Choices(("dtd", "eurosat"), ("RN50",), ("prolip_adam",), (4,), (1,), 10)
    halves = {"dtd": (0.7, 0.5), "eurosat": (0.9, 0.6)}
    table = build(
        collect_with(
            experiment("base_to_new"),
            settled,
            lambda unit: dict(zip(("base", "new"), halves[unit.dataset], strict=True)),
        )
    )
    total, dtd, _ = table.rows
    values = dict(zip(table.columns, total.cells, strict=True))
    h = lambda a, b: 2 * a * b / (a + b)  # noqa: E731
    assert values["base"].measured == pytest.approx(80)
    assert values["H_t1"].measured == pytest.approx((h(70, 50) + h(90, 60)) / 2)
    assert values["H_t2"].measured == pytest.approx(h(80, 55))
    assert values["H_t2"].published == 72.31
    assert dict(zip(table.columns, dtd.cells, strict=True))["HM"].published == 63.29
    assert dtd.group == "DTD"


def test_targets_average_what_was_not_trained_on():
    settled = Choices(("imagenet", "imagenet_v2", "imagenet_a"), ("RN50",), ("prolip_adam",), (4,), (1,), 10)
    found = {"imagenet": 0.6, "imagenet_v2": 0.5, "imagenet_a": 0.2}
    table = build(collect_with(experiment("domain"), settled, lambda unit: {"targets": found}))
    cells = dict(zip(table.columns, table.rows[0].cells, strict=True))
    assert cells["OOD"].measured == pytest.approx(35)
    assert cells["average"].measured == pytest.approx(100 * 1.3 / 3)
    assert cells["ImageNet"].published == 62.55
    assert cells["OOD"].published == 43.20
    assert cells["ImageNet"].comparable
    assert not cells["OOD"].comparable  # two of four variants


def test_formats_hold_the_same_figures():
    settled = Choices(ELEVEN, ("RN50",), ("prolip",), (1,), (1,), 10)
    table = build(collect_with(SMALL, settled, lambda unit: {"accuracy": 0.6543}))
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert float(rows[0]["measured"]) == 65.43
    assert float(rows[0]["published"]) == 64.33
    assert float(rows[0]["difference"]) == 1.1
    assert "| ProLIP, exact | 65.43 |" in render(table, "markdown")
    assert r"ProLIP, exact & 65.43 \\" in render(table, "latex")
    assert r"\%" not in render(table, "latex").split("tabular")[0]
    with pytest.raises(UsageError, match="unknown format"):
        render(table, "word")


def test_parameters_are_counted_without_a_run():
    table = parameters(experiment("parameters"))
    for row in table.rows[:4]:
        assert round(row.cells[0].measured, 3) == row.cells[0].published
    assert any(row.label.startswith("rla") and row.cells[0].measured == 1.048576 for row in table.rows)


def against(accuracy, base="zero_shot", seeds=(1, 2, 3, 4)):
    settled = Choices(("dtd", "eurosat"), ("RN50",), ("zero_shot", "prolip", "adam"), (1,), seeds, 10)
    results = collect_with(SMALL, settled, accuracy)
    (other,) = (line for line in results.lines if line.key == base)
    return build(dataclasses.replace(results, against=other))


def test_the_difference_to_another_line_is_paired_by_dataset_and_seed():
    """Against scipy's paired test, on seeds that move both lines far more than they differ."""
    rng = np.random.default_rng(0)
    noise = {(name, seed): rng.normal() for name in ("dtd", "eurosat") for seed in range(1, 5)}

    def accuracy(unit):
        adam = unit.trial.setting.options.get("solver") == "adam"
        value = 0.5 + 0.1 * unit.trial.seed + adam * (0.02 + 0.002 * noise[unit.dataset, unit.trial.seed])
        return {"accuracy": value}

    zero, exact, adam = against(accuracy, "prolip").rows
    gains = [2 + 0.2 * (noise["dtd", seed] + noise["eurosat", seed]) / 2 for seed in range(1, 5)]
    low, high = stats.ttest_1samp(gains, 0).confidence_interval(0.95)
    assert adam.cells[0].gain == pytest.approx(np.mean(gains))
    assert adam.cells[0].interval == pytest.approx((high - low) / 2)
    assert adam.cells[0].clear
    assert exact.cells[0].gain is None  # the line itself
    assert zero.cells[0].gain == pytest.approx(100 * (0.5 + 0.1) - 100 * (0.5 + 0.1 * 2.5))


def test_a_difference_within_noise_is_not_bold():
    def accuracy(unit):
        if unit.trial.setting.method == "zero_shot":
            return {"accuracy": 0.5}
        adam = unit.trial.setting.options.get("solver") == "adam"
        return {"accuracy": 0.51 + (0.2 if adam else 0.001) * (unit.trial.seed % 2)}

    table = against(accuracy)
    clear, noise = table.rows[1].cells[0], table.rows[2].cells[0]
    assert clear.clear
    assert not noise.clear
    assert noise.gain > clear.gain
    shown = render(table, "markdown")
    assert f"**+{clear.gain:.2f} ± {clear.interval:.2f}**" in shown
    assert f"| *+{noise.gain:.2f} ± {noise.interval:.2f}* |" in shown
    assert rf"\textbf{{+{clear.gain:.2f} $\pm$ {clear.interval:.2f}}}" in render(table, "latex")
    assert "gain_95" in render(table, "csv").splitlines()[0]
    one_seed = against(accuracy, seeds=(1,)).rows[1].cells[0]
    assert one_seed.interval is None
    assert not one_seed.clear


# The table of experiments


def test_every_published_row_that_is_named_exists():
    for entry in EXPERIMENTS.values():
        if entry.published is None:
            continue
        paper = published(entry.published)
        for row in entry.lines:
            if row.paper is not None and row.trained and "{model}" not in row.paper:
                assert row.paper in {method for _, method in paper.values}, f"{entry.name}: {row.paper}"


def test_only_a_recipe_has_a_published_figure_beside_it():
    """The exact forms are ours: the paper has no figure of theirs."""
    for entry in EXPERIMENTS.values():
        for row in entry.lines:
            method = methods.create(row.setting.method, **row.setting.options, **row.over[0])
            exact = getattr(method, "solver", None) == "exact" or row.setting.method == "cross_modal"
            assert not (exact and row.paper and entry.published), f"{entry.name}: {row.label}"


def test_options_of_single_datasets_reach_their_units_and_are_known():
    for entry in EXPERIMENTS.values():
        for row in entry.lines:
            for name, options in row.by_dataset.items():
                assert name in ELEVEN
                methods.create(row.setting.method, **row.setting.options, **options)
    asked = Choices(("imagenet", "dtd"), ("RN50",), ("prograd",), (8,), (1,), 10)
    first, second = expand(experiment("validation_free"), asked).units
    assert first.unit.trial.setting.options["epochs"] == 50
    assert second.unit.trial.setting.options == {"teacher": "a texture of {}.", "init": "a texture of"}


def test_keys_of_lines_are_unique():
    for entry in EXPERIMENTS.values():
        keys = [row.key for row in entry.lines]
        assert len(set(keys)) == len(keys), entry.name


def test_options_of_every_line_are_options_of_its_method():
    refused = []
    for entry in EXPERIMENTS.values():
        lacking = missing_methods(entry)
        for row in entry.lines:
            if row.setting.method not in lacking:
                for options in (*row.over, *(row.setting.grid or ({},))):
                    try:
                        methods.create(row.setting.method, **{**row.setting.options, **options})
                    except UsageError as error:
                        refused.append((entry.name, row.key, str(error)))
    assert refused == []


def test_the_grid_is_the_authors():
    assert len(GRID) == 49
    assert GRID[0] == {"lr": 1e-2, "lam": 10.0}
    assert GRID[-1]["lam"] == 0.0
    assert GRID[-1]["lr"] == pytest.approx(1e-8)


# Pictures


@pytest.mark.parametrize(
    ("name", "choices", "result"),
    [
        ("validation_free", {"shots": (1, 2), "lines": ("zero_shot", "prolip")}, {"accuracy": 0.5}),
        ("sensitivity", {"shots": (1, 2)}, {"accuracy": 0.5}),
        ("variants", {"shots": (1, 2)}, {"accuracy": 0.5}),
        ("views", {"shots": (1, 2)}, {"accuracy": 0.5}),
        ("complementarity", {"shots": (1, 2)}, {"accuracy": 0.5}),
        ("base_to_new", {"shots": (4,), "lines": ("prolip",)}, {"base": 0.5, "new": 0.4}),
        ("cross_dataset", {"shots": (4,), "lines": ("prolip",)}, {"targets": {"dtd": 0.5, "eurosat": 0.4}}),
        ("grid_search", {"shots": (1, 2)}, {"chosen": {"lr": 1e-2, "lam": 0.1}}),
    ],
)
def test_every_kind_of_figure_is_drawn(tmp_path, name, choices, result):
    pytest.importorskip("matplotlib")
    settled = Choices(("dtd", "eurosat"), ("RN50",), seeds=(1, 2), views=10, **choices)
    path = tmp_path / "figure.png"
    figures.save(figures.draw(collect_with(experiment(name), settled, lambda unit: result)), path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["validation_free", "views", "complementarity", "base_to_new", "variants"])
def test_models_are_not_mixed(name):
    """Two models that differ by 20 points: every table and every panel shows one of them."""
    pytest.importorskip("matplotlib")
    entry = experiment(name)
    keys = tuple(row.key for row in entry.lines if row.setting.method.startswith(("zero_shot", "prolip")))
    settled = Choices(("dtd", "eurosat"), ("RN50", "ViT-B/16"), keys, (1, 2), (1, 2), 10)

    def result(unit):
        value = 0.5 + 0.2 * ("ViT" in unit.model)
        return {"accuracy": value, "base": value, "new": value}

    collected = collect_with(entry, settled, result)
    lines = build(collected).rows
    for model, value in (("RN50", 50), ("ViT-B/16", 70)):
        mine = [line for line in lines if line.group.startswith(model)]
        assert len(mine) == len(lines) / 2
        assert all(cell.measured == pytest.approx(value) for line in mine for cell in line.cells if cell)
    first, second = figures.draw(collected).axes
    assert (first.get_title(), second.get_title()) == ("RN50", "ViT-B/16")
    if name != "base_to_new":  # which has bars
        for axes, value in ((first, 50), (second, 70)):
            shown = [y for line in axes.lines for y in line.get_ydata()]
            expected = 0.0 if name == "complementarity" else value
            assert shown == pytest.approx([expected] * len(shown))


def test_each_dataset_has_a_panel_where_the_table_has_lines_for_each():
    pytest.importorskip("matplotlib")
    settled = Choices(("dtd", "eurosat"), ("RN50",), ("prolip",), (1, 2), (1,), 10)
    found = collect_with(
        experiment("per_dataset"), settled, lambda unit: {"accuracy": 0.4 + 0.3 * (unit.dataset == "dtd")}
    )
    panels = {axes.get_title(): axes for axes in figures.draw(found).axes if axes.get_visible()}
    assert panels.keys() == {"DTD", "EuroSAT"}
    for name, value in (("DTD", 70), ("EuroSAT", 40)):
        assert list(panels[name].lines[0].get_ydata()) == pytest.approx([value, value])


def test_an_unfinished_figure_says_so():
    """One line has both datasets, the other only one and there only one of two seeds."""
    pytest.importorskip("matplotlib")
    settled = Choices(("dtd", "eurosat"), ("RN50",), ("prolip", "adam"), (1, 2), (1, 2), 10)
    whole = collect_with(SMALL, settled, lambda unit: {"accuracy": 0.5})
    assert figures.draw(whole)._supxlabel is None
    units = [
        dataclasses.replace(unit, status="waiting", result=None)
        if unit.planned.line == "adam"
        and (unit.planned.unit.dataset, unit.planned.unit.trial.seed) != ("dtd", 1)
        else unit
        for unit in whole.units
    ]
    figure = figures.draw(dataclasses.replace(whole, units=units))
    note = figure._supxlabel.get_text().replace("\n", " ")
    assert "Unfinished: 12 of 24 runs are missing" in note
    assert "ProLIP, Adam: of the datasets only DTD" in note
    hollow = [one for one in figure.axes[0].lines if one.get_markerfacecolor() == "white"]
    assert [list(one.get_xdata()) for one in hollow] == [[0, 1]]
    assert hollow[0].get_color() == figure.axes[0].lines[1].get_color()


def test_nothing_done_is_nothing_to_draw(tmp_path):
    settled = Choices(("dtd",), ("RN50",), ("prolip",), (1,), (1,), 10)
    with pytest.raises(InputError, match="nothing to draw"):
        figures.draw(Results(expand(SMALL, settled), []))


def test_a_run_from_images_to_table(photos, tmp_path):
    resources = Resources(photos.parent, tmp_path / "r.sqlite", jobs=0)
    choices = Choices(("photos",), lines=("zero_shot", "prolip"), shots=(2,), seeds=(1, 2), views=1)
    seen = []
    counts = run(
        make_plan(experiment("base_to_new"), choices, photos.parent), resources, progress=seen.append
    )
    assert (counts.done, counts.failed) == (3, 0)
    assert seen[-1].counts.total == 3
    table = build(Results.read("base_to_new", resources.results))
    assert [row.label for row in table.rows] == ["Zero-shot", "ProLIP, exact"]
    with pytest.raises(UsageError, match="has not been run"):
        Results.read("views", resources.results)


# Through the towers


@pytest.fixture
def whole(photos, tmp_path, monkeypatch):
    """The photos as a problem, with its encoder at hand."""
    monkeypatch.setattr(
        "prolip.research.protocols.tower_tasks.load_once", lambda model, device: TinyEncoder()
    )
    monkeypatch.setattr("prolip.research.protocols.protocols.load_once", lambda model, device: TinyEncoder())
    with ResultStore(tmp_path / "r.sqlite") as store:
        _, prepared, _ = planned(photos, store)
    return read_problem(str(prepared.files["offline", "photos"]))


def test_a_tower_task_holds_the_pictures_that_were_drawn(whole):
    trial = Trial(Setting("zero_shot"), shots=2, seed=2)
    chosen = sample_support(whole.splits["train"].labels, 2, 2)
    task = tower_task(trial.task(whole, chosen), whole, chosen, "own")
    assert len(task.images) == task.n == 6
    assert task.templates == ("a photo of a {}.",)
    encoder = TinyEncoder()
    for i, picture in enumerate(task.images):
        again = encoder.encode(encoder.preprocess.centre(picture)[None])
        assert np.allclose(again[0], task.x[0, i], atol=1e-6)


def test_at_test_time_one_view_leaves_the_model_almost_as_it_was(whole):
    """The step is 1e-4 a weight: accuracy stays, and only the targets that are asked for are measured."""
    plain = transfer(whole, Trial(Setting("zero_shot"), shots=1), [whole])
    stepped = per_image(whole, Trial(Setting("zero_shot"), shots=1), [whole], views=3)
    assert stepped["targets"].keys() == plain["targets"].keys() == {"photos"}
    assert stepped["accuracy"] == pytest.approx(plain["accuracy"], abs=0.1)
    with pytest.raises(InputError, match="features only"):
        per_image(dataclasses.replace(whole, model=""), Trial(Setting("zero_shot")))
