"""Experiments from plan to results, on a tiny encoder and a few coloured images."""

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pictures import blotch
from prolip import methods
from prolip.core import InputError, ProlipError, UsageError
from prolip.core.errors import UnknownNameError
from prolip.data.sampling import sample_support
from prolip.io.environment import MissingPackageError
from prolip.methods.base import REGISTERED
from prolip.research.catalogue import Entry, Experiment, find_experiment
from prolip.research.datasets import DATASETS, read_dataset
from prolip.research.protocols import encoded_dataset
from prolip.research.protocols.protocols import adapt_at_test_time, transfer
from prolip.research.protocols.run import Run
from prolip.research.reporting.results import Results
from prolip.research.running import result_key
from prolip.research.running.encoding import read_encoding
from prolip.research.running.plan import make_plan
from prolip.research.running.result_store import ResultStore
from prolip.research.running.run import execute_job, prepare_jobs, run_plan
from prolip.research.running.source import Images
from prolip.research.towers.test_time import TestTimeProLIP
from tiny_bench import SMALL, Nothing, TinyEncoder, jobs_of, plan_on


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda name, device="auto": TinyEncoder())


def accuracies(path, experiment="small"):
    results = Results.read(experiment, path)
    return {one.run.to_json(): one.result["accuracy"] for one in results.runs}


def run_here(plan, photos, path, **options):
    return run_plan(plan, Images(photos.parent), path, jobs=1, **options)


# Plans


def test_a_plan_has_every_combination_once(photos):
    plan = plan_on(photos)
    assert plan.models == ("offline",)  # a folder of images: not the paper's data, so not its model
    assert len(plan.runs) == 1 + 4 + 8  # zero-shot once; shots x seeds; both learning rates
    assert len({run.to_json() for run in plan.runs}) == len(plan.runs)


def test_a_selection_narrows_a_plan_and_survives_the_store(photos, tmp_path):
    plan = plan_on(photos, entries=("prolip",), shots=(2, None), seeds=(5,), views=1)
    assert [(run.shots, run.seed, run.views) for run in plan.runs] == [(2, 5, 1), (None, 5, 1)]
    with ResultStore(tmp_path / "r.sqlite") as store:
        store.add_plan(plan, ["a", "b"])
        assert store.last_plan("small")[0] == plan


def test_a_line_with_options_is_a_line_of_its_own(photos):
    plan = plan_on(photos, entries=("prolip:lam=0.5:solver=adam:epochs=3", "adam:lr=0.1", "gda"), seeds=(1,))
    first, second, third = plan.experiment.entries
    assert first.options == {"lam": 0.5, "solver": "adam", "epochs": 3}
    assert (second.options["lr"], third.method) == (0.1, "gda")
    assert [run.shots for run in plan.runs] == [1, 2] * 3  # one learning rate is left
    for wrong in ("prolip:lamm=1", "prolip:lam=1:lr", "prolip:epochs=many"):
        with pytest.raises(UsageError):
            plan_on(photos, entries=(wrong,))


def test_unknown_lines_and_datasets_are_named(photos, tmp_path):
    with pytest.raises(UnknownNameError) as error:
        plan_on(photos, entries=("prolipp",))
    assert "prolip" in error.value.suggestions
    with pytest.raises(UnknownNameError):
        make_plan(SMALL, Images(photos.parent), datasets=("photo",))
    with pytest.raises(InputError, match="none of the datasets"):
        make_plan(SMALL, Images(tmp_path))


def test_a_dataset_may_be_a_folder_further_below(photos):
    name = f"{photos.parent.name}/photos"
    plan = make_plan(SMALL, Images(photos.parent.parent), datasets=(f"{name}/",), entries=("prolip",))
    assert plan.datasets == (name,)
    (job, *_) = prepare_jobs(plan, Images(photos.parent.parent).open(plan))
    assert execute_job(job).error is None


def test_validation_images_where_there_are_none_are_refused(photos):
    for name in ("base_to_new", "cross_dataset"):
        with pytest.raises(UsageError):
            plan_on(photos, find_experiment(name), validation="shots")
    with pytest.raises(UsageError):
        plan_on(photos, validation="shots", shots=(None,))


def test_templates_reach_every_line(photos):
    own = dataclasses.replace(SMALL.entries[1], key="own", template="clap")
    chosen = dataclasses.replace(SMALL, entries=(SMALL.entries[1], own))
    plan = plan_on(photos, chosen, templates=("a drawing of a {}.",), shots=(1,), seeds=(1,))
    dataset = read_encoding(Path(jobs_of(plan, photos)[0].files[0])).dataset
    drawn = TinyEncoder().text(dataset.classes, ["a drawing of a {}."]).rows
    assert dataset.texts.keys() == {"own", "clap"}
    assert all(np.allclose(text.rows, drawn) for text in dataset.texts.values())


def test_features_that_no_memory_holds_are_refused_with_their_size(photos, monkeypatch):
    monkeypatch.setattr("prolip.research.running.source.MAX_SUPPORT_BYTES", 100)
    with pytest.raises(InputError):
        jobs_of(plan_on(photos), photos)


# Keys


def test_a_corrected_training_label_is_another_run(photos, monkeypatch):
    plan = plan_on(photos, entries=("prolip",), shots=(None,), seeds=(1,))
    before = jobs_of(plan, photos)

    def corrected(name, root):
        found = read_dataset(name, root)
        train = found.splits["train"]
        labels = [1 - train.labels[0], *train.labels[1:]]
        return dataclasses.replace(
            found, splits={**found.splits, "train": dataclasses.replace(train, labels=labels)}
        )

    monkeypatch.setattr("prolip.research.running.source.read_dataset", corrected)
    after = jobs_of(plan, photos)
    assert read_encoding(Path(after[0].files[0])).dataset.splits["train"].labels[0] == 1
    assert read_encoding(Path(before[0].files[0])).dataset.splits["train"].labels[0] == 0
    assert after[0].key != before[0].key


def test_a_key_depends_on_the_images_of_its_run(photos):
    whole = plan_on(photos)
    place = next(i for i, run in enumerate(whole.runs) if run.method == "prolip" and run.shots == 1)
    run = whole.runs[place]
    alone = dataclasses.replace(whole, runs=(run,))
    before = jobs_of(whole, photos)[place].key
    assert jobs_of(alone, photos)[0].key == before  # whatever else is prepared with it

    train = read_dataset("photos", photos.parent).splits["train"]
    drawn = sample_support(train.labels, 1, run.seed)
    other = next(path for i, path in enumerate(train.images) if i not in drawn)
    blotch((1, 2, 3), 1).save(other)
    assert jobs_of(alone, photos)[0].key == before
    blotch((1, 2, 3), 2).save(train.images[drawn[0]])
    assert jobs_of(alone, photos)[0].key != before


def test_a_key_depends_on_the_code_and_the_libraries_that_the_run_uses(monkeypatch, tmp_path):
    plain, tower = Run("prolip"), Run("zero_shot", protocol="test_time_prolip")
    changed, real = [], result_key._code

    def keys(*files, **libraries):
        result_key.code_version.cache_clear()
        known = {"numpy": "2.0", "scipy": "1.14", "onnxruntime": "1.20", "torch": "2.6", "peft": "0.15"}
        monkeypatch.setattr(result_key, "_installed", lambda name: (known | libraries).get(name, "absent"))
        monkeypatch.setattr(
            result_key, "_code", lambda file: (f"{file.name in files}{real(file)[0]}", real(file)[1])
        )
        changed[:] = result_key.result_key(plain, "inputs"), result_key.result_key(tower, "inputs")
        return list(changed)

    before = keys()
    assert keys() == before
    assert result_key.result_key(plain, "other inputs") != before[0]
    for same, *other in (
        ((False, False), "objective.py"), ((True, True), "tip_adapter.py"), ((True, False), "test_time.py"),
    ):  # fmt: skip
        assert tuple(a == b for a, b in zip(keys(*other), before, strict=True)) == same, other
    for library, same in (("numpy", [False, False]), ("torch", [True, False]), ("peft", [True, False])):
        assert [a == b for a, b in zip(keys(**{library: "99"}), before, strict=True)] == same
    result_key.code_version.cache_clear()
    first, second = (tmp_path / name for name in ("first.py", "second.py"))
    first.write_text('"""Words."""\nx = 1\n')
    second.write_text('"""Other words."""\nx = 1  # a comment\n')
    assert real(first) == real(second)


# Files of features


def test_lines_with_other_crops_have_views_of_their_own(photos):
    wide = dataclasses.replace(SMALL.entries[1], key="wide", view_area=0.08)
    plan = plan_on(
        photos, dataclasses.replace(SMALL, entries=(SMALL.entries[1], wide)), seeds=(1,), shots=(2,)
    )
    usual, other = (
        read_encoding(Path(job.files[0])).dataset.splits["train"].x for job in jobs_of(plan, photos)
    )
    assert np.array_equal(usual[0], other[0])  # the centre
    assert not np.array_equal(usual[1], other[1])


def test_a_damaged_file_of_features_fails_its_runs_with_one_line(photos):
    jobs = jobs_of(plan_on(photos), photos)
    path = Path(jobs[0].files[0])
    path.write_bytes(path.read_bytes()[:100])
    outcome = execute_job(jobs[0])
    assert outcome.result is None
    assert outcome.error.startswith("ReadError: ")


# The store


def test_a_result_is_written_once(photos, tmp_path):
    plan = plan_on(photos, entries=("prolip",), shots=(1,), seeds=(1,))
    with ResultStore(tmp_path / "r.sqlite") as store:
        store.add_plan(plan, ["a"])
        store.add_result("a", plan.runs[0], None, "too early")
        assert (store.last_plan("small")[1][0].error, store.known()) == ("too early", set())
        store.add_result("a", plan.runs[0], {"accuracy": 0.5}, None)
        store.add_result("a", plan.runs[0], {"accuracy": 0.7}, None)
        store.add_result("a", plan.runs[0], None, "too late")
        (found,) = store.last_plan("small")[1]
    assert (found.result, found.error) == ({"accuracy": 0.5}, None)


# Running


def test_results_do_not_depend_on_the_processes(photos, tmp_path):
    plan = plan_on(photos)
    for jobs in (1, 2):
        assert run_plan(plan, Images(photos.parent), tmp_path / f"{jobs}.sqlite", jobs=jobs).done == 13
    assert accuracies(tmp_path / "1.sqlite") == accuracies(tmp_path / "2.sqlite")


def test_a_failure_is_a_row_and_is_tried_again(photos, tmp_path):
    broken = Experiment(
        "broken",
        "",
        "",
        "few_shot",
        (Entry("bad", "Bad", "prolip", {"lam": -1.0}), Entry("good", "Good", "prolip", {"lam": 1.0})),
        shots=(1,),
        seeds=(1,),
        views=1,
    )
    plan = plan_on(photos, broken)
    for _ in range(2):
        counts = run_here(plan, photos, tmp_path / "r.sqlite")
        assert (counts.done, counts.failed, counts.total) == (1, 1, 2)
    bad, good = Results.read("broken", tmp_path / "r.sqlite").runs
    assert "lam" in bad.error
    assert good.result


def test_a_finished_plan_runs_nothing(photos, tmp_path):
    plan, calls = plan_on(photos), []
    for _ in range(2):
        assert run_here(plan, photos, tmp_path / "r.sqlite", progress=calls.append).done == 13
    assert (calls[-1].done, calls[-1].total, len(calls)) == (13, 13, 13)


def test_a_run_that_two_lines_share_is_run_once(photos, tmp_path):
    same = {"lam": "1/N"}
    twins = dataclasses.replace(SMALL, entries=tuple(Entry(x, x, "prolip", same) for x in "ab"), name="twins")
    plan = plan_on(photos, twins, shots=(1,), seeds=(1,))
    counts = run_here(plan, photos, tmp_path / "r.sqlite")
    assert (len(plan.runs), counts.total) == (2, 1)
    first, second = Results.read("twins", tmp_path / "r.sqlite").runs
    assert first.result == second.result


class Mine(methods.get("zero_shot")):
    """A method of a user's own."""


def count_images(dataset, run):
    """A protocol of a user's own."""
    return {"accuracy": len(dataset.splits["test"].labels) / 100}


TABLE = Experiment("table", "A table", "ours", f"{__name__}:count_images", (Entry("gda", "GDA", "gda"),))


def test_methods_protocols_and_experiments_of_ones_own(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(REGISTERED, "mine", Mine)
    plan = plan_on(photos, entries=("zero_shot", "mine", "rla"), shots=(1,), seeds=(1,), views=1)
    assert run_here(plan, photos, tmp_path / "r.sqlite").done == 3
    zero, mine, _ = (one.result["accuracy"] for one in Results.read("small", tmp_path / "r.sqlite").runs)
    assert mine == zero
    table = find_experiment(f"{__name__}:TABLE")
    assert run_here(plan_on(photos, table, shots=(1,), seeds=(1,)), photos, tmp_path / "t.sqlite").done == 1
    assert [*accuracies(tmp_path / "t.sqlite", "table").values()] == [0.12]
    with pytest.raises(UnknownNameError):
        find_experiment("nothing")


def test_an_incomplete_dataset_is_noticed(photos, tmp_path, monkeypatch):
    known = DATASETS["dtd"]
    sizes = {"train": 18, "test": 12}
    for classes, expected in ((3, {}), (4, {"photos": "3 of 4 classes"})):
        dataset = dataclasses.replace(known, name="photos", sizes=sizes, classes=classes)
        monkeypatch.setitem(DATASETS, "photos", dataset)
        plan = plan_on(photos, entries=("zero_shot",), models=("offline",))
        run_here(plan, photos, tmp_path / f"{classes}.sqlite")
        assert Results.read("small", tmp_path / f"{classes}.sqlite").plan.incomplete == expected


def test_what_is_missing_is_found_before_encoding(photos, tmp_path, monkeypatch):
    plan = plan_on(photos)
    with pytest.raises(ProlipError):
        run_plan(plan, Nothing(), tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError):
        run_plan(plan, Nothing(), tmp_path / "r.sqlite", ray="local")


SWEEP = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
import prolip.encoders
from tiny_bench import TinyEncoder, plan_on
from prolip.research.running.run import run_plan
from prolip.research.running.source import Images
if __name__ == "__main__":
    prolip.encoders.load = lambda name, device="auto": TinyEncoder()
    photos, results = map(Path, sys.argv[1:3])
    run_plan(plan_on(photos, seeds=tuple(range(1, 20))), Images(photos.parent), results, jobs=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of another process")
def test_killed_and_started_again_it_ends_the_same(photos, tmp_path):
    plan = plan_on(photos, seeds=tuple(range(1, 20)))
    run_here(plan, photos, tmp_path / "whole.sqlite")
    script, path = tmp_path / "sweep.py", tmp_path / "killed.sqlite"
    script.write_text(SWEEP)
    here = Path(__file__).parent
    command = [sys.executable, script, photos, path, here, here.parent]
    for stop in (signal.SIGKILL, signal.SIGINT):
        sweep = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (path.exists() and count_results(path)):
            time.sleep(0.02)
        sweep.send_signal(stop)
        sweep.wait(30)
    assert run_here(plan, photos, path).done == 1 + 19 * 2 * 3
    assert accuracies(path) == accuracies(tmp_path / "whole.sqlite")


def count_results(path):
    with closing(sqlite3.connect(path)) as database:
        try:
            return database.execute("SELECT count(*) FROM results").fetchone()[0]
        except sqlite3.OperationalError:
            return 0


# Through the towers


@pytest.fixture
def encoded(photos, monkeypatch):
    """The photos as an encoded dataset, with its encoder."""
    monkeypatch.setattr(encoded_dataset, "_load", lambda encoder, device: TinyEncoder())
    return read_encoding(Path(jobs_of(plan_on(photos), photos)[0].files[0])).dataset


def test_the_images_of_a_draw_are_those_of_its_features(encoded):
    run = Run("zero_shot", shots=2, seed=2)
    chosen = run.draw(encoded).train
    assert chosen == sample_support(encoded.splits["train"].labels, 2, 2)
    task, images = run.task(encoded, chosen), encoded.images("train", chosen)
    assert len(images) == task.n == 6
    encoder = encoded.load_encoder()
    for i, image in enumerate(images):
        again = encoder.encode(encoder.preprocess.centre(image)[None])
        assert np.allclose(again[0], task.x[0, i], atol=1e-3)


def test_at_test_time_one_step_leaves_the_model_almost_as_it_was(encoded):
    """The step is 1e-4 a weight: accuracy stays, and only the given targets are measured."""
    run = Run("zero_shot", shots=1)
    plain = transfer(encoded, run, [encoded])
    stepped = adapt_at_test_time(encoded, run, [encoded], TestTimeProLIP(views=3))
    assert stepped["targets"].keys() == plain["targets"].keys() == {"photos"}
    assert stepped["accuracy"] == pytest.approx(plain["accuracy"], abs=0.1)
    with pytest.raises(InputError):
        adapt_at_test_time(dataclasses.replace(encoded, encoder=""), run)
