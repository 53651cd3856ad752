"""Experiments from plan to table, on a tiny encoder and a few coloured images."""

import csv
import dataclasses
import functools
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pictures import blotch
from prolip import methods
from prolip.core import Head, InputError, UsageError
from prolip.core.errors import UnknownNameError
from prolip.data.sampling import sample_support
from prolip.encoders import Encoder, Preprocess
from prolip.io.environment import MissingPackageError
from prolip.methods import registry
from prolip.research.catalogue import EXPERIMENTS, experiment
from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.lines import AUTHORS_GRID
from prolip.research.catalogue.published import BACKBONES, published, published_rows
from prolip.research.datasets import DATASETS, ELEVEN, find_dataset, read_dataset
from prolip.research.protocols import encoded_dataset
from prolip.research.protocols.protocols import PROTOCOLS, adapt_at_test_time, transfer
from prolip.research.protocols.run import Run
from prolip.research.reporting import figures, write_rows
from prolip.research.reporting.build_table import build, compare, parameters
from prolip.research.reporting.results import NotRunError, Results
from prolip.research.reporting.table import render, rich_tables
from prolip.research.running.encoded_file import is_intact, read_encoded
from prolip.research.running.estimate import Timings, guess_seconds
from prolip.research.running.pack import Pack, _inflate, write_pack
from prolip.research.running.plan import NoDatasetsError, Plan, make_plan, missing_methods
from prolip.research.running.prepare import encode_datasets, prepare
from prolip.research.running.result_key import result_key
from prolip.research.running.result_store import ProlipError, ResultStore, RunResult
from prolip.research.running.run import dry_run, local_pool, run_jobs, run_plan


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
        Line("zero_shot", "Zero-shot", "zero_shot", paper="CLIP (0-shot)"),
        Line("prolip", "ProLIP, exact", "prolip", {"lam": "1/N"}),
        Line(
            "adam",
            "ProLIP, Adam",
            "prolip",
            {"lam": "1/N", "solver": "adam", "epochs": 5},
            over=({"lr": 1e-3}, {"lr": 1e-2}),
            paper="ProLIP",
        ),
    ),
    shots=(1, 2),
    seeds=(1, 2),
    views=2,
    published="validation_free",
)


def plan_on(photos, chosen=SMALL, **options):
    return make_plan(chosen, photos.parent, datasets=("photos",), **options)


def planned(photos, store, chosen=SMALL, **options):
    """A plan in a store: its number, its jobs, and itself."""
    plan = plan_on(photos, chosen, **options)
    jobs = prepare(plan, photos.parent)
    return store.add_plan(plan, [job.key for job in jobs]), jobs, plan


def accuracies(store, plan):
    return {one.run.to_json(): one.result["accuracy"] for one in store.results(plan)}


def keys_of(plan, photos):
    return [job.key for job in prepare(plan, photos.parent)]


def made_up_plan(*runs):
    return Plan(SMALL, (), (), (), (), 1, runs=tuple(dataclasses.replace(r, line=r.method) for r in runs))


# Plans and preparation


def test_a_plan_has_every_combination_once(photos):
    plan = plan_on(photos)
    assert plan.models == ("offline",)  # a folder of images: not the paper's data, so not its model
    assert len(plan.runs) == 1 + 4 + 8  # zero-shot once; shots x seeds; both learning rates
    assert len({run.to_json() for run in plan.runs}) == len(plan.runs)


def test_a_selection_narrows_a_plan_and_survives_the_store(photos, tmp_path):
    plan = plan_on(photos, lines=("prolip",), shots=(2, None), seeds=(5,), views=1)
    assert [(run.shots, run.seed, run.views) for run in plan.runs] == [(2, 5, 1), (None, 5, 1)]
    with ResultStore(tmp_path / "r.sqlite") as store:
        store.add_plan(plan, ["a", "b"])
        assert store.last_plan("small")[0] == plan


def test_unknown_lines_and_datasets_are_named(photos, tmp_path):
    with pytest.raises(UnknownNameError) as error:
        plan_on(photos, lines=("prolipp",))
    assert "prolip" in error.value.suggestions
    with pytest.raises(UnknownNameError):
        make_plan(SMALL, photos.parent, datasets=("photo",))
    with pytest.raises(NoDatasetsError):
        make_plan(SMALL, tmp_path)


def test_what_is_named_twice_is_planned_once(photos):
    given = {"seeds": (1, 2), "shots": (1,), "models": ("offline",)}
    once = make_plan(SMALL, photos.parent, datasets=("photos",), **given)
    twice = {name: values * 2 for name, values in given.items()}
    assert make_plan(SMALL, photos.parent, datasets=("photos", "photos/"), **twice) == once


def test_a_path_to_a_dataset_is_refused_with_the_options_for_it(photos):
    with pytest.raises(UsageError) as error:
        make_plan(SMALL, photos.parent.parent, datasets=(f"{photos.parent.name}/photos",))
    assert f'data="{photos.parent}" datasets="photos"' in str(error.value)


def test_validation_images_where_there_are_none_are_refused(photos):
    for name in ("base_to_new", "cross_dataset"):
        with pytest.raises(UsageError):
            plan_on(photos, experiment(name), validation="shots")
    with pytest.raises(UsageError):
        plan_on(photos, validation="shots", shots=(None,))
    assert plan_on(photos, experiment("base_to_new"), shots=(None,), lines=("prolip",)).runs


def test_all_the_data_of_the_base_classes_can_be_trained_on(photos, tmp_path):
    plan = plan_on(photos, experiment("base_to_new"), shots=(None,), lines=("prolip",), seeds=(1,), views=1)
    assert run_plan(plan, photos.parent, tmp_path / "r.sqlite", jobs=0).failed == 0


def test_a_corrected_training_label_reaches_the_workers(photos, monkeypatch):
    """The same images with another label are another file."""
    plan = plan_on(photos, lines=("prolip",), shots=(None,), seeds=(1,))
    before = prepare(plan, photos.parent)

    def corrected(name, root):
        found = read_dataset(name, root)
        train = found.splits["train"]
        labels = [1 - train.labels[0], *train.labels[1:]]
        return dataclasses.replace(
            found, splits={**found.splits, "train": dataclasses.replace(train, labels=labels)}
        )

    monkeypatch.setattr("prolip.research.running.prepare.read_dataset", corrected)
    after = prepare(plan, photos.parent)
    assert read_encoded(after[0].files[0]).splits["train"].labels[0] == 1
    assert read_encoded(before[0].files[0]).splits["train"].labels[0] == 0
    assert after[0].key != before[0].key


def test_a_key_depends_on_the_images_of_its_run(photos):
    whole = plan_on(photos)
    place = next(i for i, run in enumerate(whole.runs) if run.method == "prolip" and run.shots == 1)
    run = whole.runs[place]
    alone = dataclasses.replace(whole, runs=(run,))
    before = keys_of(whole, photos)[place]
    assert keys_of(alone, photos) == [before]  # whatever else is prepared with it

    train = read_dataset("photos", photos.parent).splits["train"]
    drawn = sample_support(train.labels, 1, run.seed)
    other = next(path for i, path in enumerate(train.images) if i not in drawn)
    blotch((1, 2, 3), 1).save(other)
    assert keys_of(alone, photos) == [before]
    blotch((1, 2, 3), 2).save(train.images[drawn[0]])
    assert keys_of(alone, photos) != [before]


def test_a_key_depends_on_code_and_libraries(monkeypatch):
    """Another version of a library is another row; those of the towers count where a tower runs."""
    from prolip.research.running import result_key as module

    plain, tower = Run("prolip"), Run("zero_shot", protocol="test_time_prolip")

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
    monkeypatch.setattr(module, "_SOURCES", (*module._SOURCES, "sklearn.py"))
    assert not set(keys()) & set(before)
    module._version.cache_clear()


def test_encoded_datasets_come_back_from_their_files(photos):
    (file,) = {file for job in prepare(plan_on(photos), photos.parent) for file in job.files}
    mapped, copied = read_encoded(file), read_encoded(np.fromfile(file, np.uint8))
    for dataset in (mapped, copied):
        assert dataset.classes == ("blue", "green", "red")
        assert dataset.splits["train"].x.shape[0] == 2
        assert len(dataset.splits["test"].labels) == 12
        assert dataset.texts["own"].features.shape == (1, 3, 6)
    assert np.array_equal(mapped.splits["train"].x, copied.splits["train"].x)


# Packs of features


def test_a_pack_runs_without_images_and_gives_the_same_table(photos, tmp_path):
    """Features are rounded to float16, which changes few of the predictions: here none."""
    plan = plan_on(photos, views=1)
    pack = write_pack(tmp_path / "pack", plan, encode_datasets(plan, photos.parent))
    run_plan(plan, photos.parent, tmp_path / "images.sqlite", jobs=0)
    shutil.rmtree(photos)
    opened = Pack.open(tmp_path / "pack")
    assert opened == pack
    again = make_plan(SMALL, None, **opened.selection("small"))
    assert again == plan
    assert run_plan(again, opened, tmp_path / "pack.sqlite", jobs=2).done == len(plan.runs)
    results = [Results.read("small", tmp_path / f"{name}.sqlite") for name in ("images", "pack")]
    first, second = ([row.cells[:2] for row in build(found).rows] for found in results)
    assert first == second
    split = opened.read("photos")[0].dataset.splits["train"]
    assert split.x.dtype == np.float16
    assert split.take(split.indices[:2].tolist())[0].dtype == np.float32


def test_a_pack_names_what_it_lacks(photos, tmp_path):
    plan = plan_on(photos, views=1)
    pack = write_pack(tmp_path / "pack", plan, encode_datasets(plan, photos.parent))
    for other, lacking in (
        ({"views": 2}, "2 views"),
        ({"models": ("RN101",)}, 'model="RN101"'),
        ({"templates": ("a drawing of a {}.",)}, "other templates"),
        ({"validation": "shots"}, 'validation="shots"'),
        ({"seeds": (7,)}, "seeds 7"),
    ):
        with pytest.raises(InputError) as error:
            pack.check(make_plan(SMALL, None, **{**pack.selection("small"), **other}))
        assert lacking in str(error.value)


def test_a_pack_has_the_validation_images_of_single_lines(photos, tmp_path):
    lines = tuple(dataclasses.replace(x, validation="shots" if x.trained else None) for x in SMALL.lines)
    chosen = dataclasses.replace(SMALL, lines=lines)
    plan = plan_on(photos, chosen, views=1)
    pack = write_pack(tmp_path / "pack", plan, encode_datasets(plan, photos.parent))
    again = make_plan(chosen, None, **pack.selection("small"))
    assert run_plan(again, pack, tmp_path / "r.sqlite", jobs=0).failed == 0


def test_a_pack_lists_its_images_files_and_licences(photos, tmp_path):
    plan = plan_on(photos, lines=("zero_shot", "prolip"), views=1)
    write_pack(tmp_path / "pack", plan, encode_datasets(plan, photos.parent))
    about = json.loads((tmp_path / "pack" / "pack.json").read_text())
    photos_about = about["about"]["photos"]
    for name, checksum in photos_about["files"].items():
        assert hashlib.sha256((tmp_path / "pack" / name).read_bytes()).hexdigest() == checksum
    assert photos_about["licence"] == "not known"
    assert about["precision"] == "float16"
    splits = json.loads(lzma.decompress((tmp_path / "pack" / "splits" / "photos.json.xz").read_bytes()))
    train = read_dataset("photos", photos.parent).splits["train"]
    for (path, label, name), image, expected in zip(splits["train"], train.images, train.labels, strict=True):
        assert ((Path(train.root) / path).resolve(), label) == (image.resolve(), expected)
        assert name == train.classes[label]
    text = b"".join(file.read_bytes() for file in (tmp_path / "pack").rglob("*") if file.is_file())
    assert str(tmp_path).encode() not in text  # nothing of the machine


def test_a_damaged_pack_is_refused(photos, tmp_path):
    plan = plan_on(photos, lines=("prolip",), views=1)
    pack = write_pack(tmp_path / "pack", plan, encode_datasets(plan, photos.parent))
    for other in ({"seeds": (7,)}, {"shots": (3,)}, {"views": 2}):
        with pytest.raises(InputError):
            prepare(dataclasses.replace(plan, **other), pack)
    file = pack.file("photos")
    content = file.read_bytes()
    for place in (*np.random.default_rng(0).integers(0, len(content), 100).tolist(), len(content) - 3):
        damaged = bytearray(content)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(InputError):
            prepare(plan, pack)
    larger = content.replace(b'[\\"<f2\\", [1, ', b'[\\"<f2\\", [9, ')  # views than the streams have
    assert larger != content
    file.write_bytes(larger)
    with pytest.raises(InputError):
        prepare(plan, pack)
    file.write_bytes(content)
    assert prepare(plan, pack)
    about = json.loads((tmp_path / "pack" / "pack.json").read_text("utf-8"))
    for other in ({"seeds": 5}, {"views": "x"}, {"datasets": "dtd"}, {"model": 3}, {"datasets": [{}]}):
        (tmp_path / "pack" / "pack.json").write_text(json.dumps({**about, **other}))
        with pytest.raises(InputError):
            Pack.open(tmp_path / "pack")
    (tmp_path / "pack" / "pack.json").write_text('{"kind": "prolip features"}')
    with pytest.raises(InputError):
        Pack.open(tmp_path / "pack")


def test_arrays_of_negative_size_do_not_hide_large_ones():
    with pytest.raises(ValueError, match="negative"):
        _inflate({}, {"a": ["<f2", [10**15]], "b": ["<f2", [-(10**15)]]}, 1000)


def test_lines_that_need_images_do_not_run_from_a_pack(photos):
    plan = make_plan(experiment("full_tuning"), None, datasets=("dtd",), lines=("zero_shot", "full"))
    assert [line.key for line in plan.experiment.lines] == ["zero_shot"]
    with pytest.raises(UsageError):
        make_plan(experiment("full_tuning"), None, datasets=("dtd",), lines=("full",))


# The store


def test_two_runners_share_the_work(tmp_path):
    runs = [Run("prolip", seed=k) for k in range(6)]
    with ResultStore(tmp_path / "r.sqlite") as one, ResultStore(tmp_path / "r.sqlite") as two:
        plan = one.add_plan(made_up_plan(*runs), list("abcdef"))
        first, second = one.claim(plan, 4), two.claim(plan, 4)
        assert (len(first), len(second)) == (4, 2)
        assert not set(first) & set(second)
        assert one.claim(plan, 1) == []


def test_runs_of_a_dead_runner_are_taken_over(tmp_path, monkeypatch):
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan = store.add_plan(made_up_plan(Run("prolip")), ["a"])
        with ResultStore(tmp_path / "r.sqlite") as gone:
            finished = subprocess.Popen([sys.executable, "-c", ""])
            finished.wait()
            host = gone.owner.rsplit(":", 2)[0]
            gone.owner = f"{host}:{finished.pid}:dead"
            assert gone.claim(plan, 1)
            assert store.claim(plan, 1)  # its process does not exist
            gone.owner = "elsewhere:1:x"
            store.release()
            assert gone.claim(plan, 1)
            assert not store.claim(plan, 1)  # on another machine, with a new time stamp
            monkeypatch.setattr("prolip.research.running.result_store.STALE", -1.0)
            assert store.claim(plan, 1)


@pytest.mark.skipif(os.name != "posix", reason="signals of another process")
def test_another_users_process_does_not_keep_runs_forever(tmp_path, monkeypatch):
    """After a restart, the number of a dead runner's process can be that of a system service."""

    def forbidden(pid, signal):
        raise PermissionError

    with ResultStore(tmp_path / "r.sqlite") as store, ResultStore(tmp_path / "r.sqlite") as gone:
        plan = store.add_plan(made_up_plan(Run("prolip")), ["a"])
        assert gone.claim(plan, 1)
        monkeypatch.setattr("os.kill", forbidden)
        assert not store.claim(plan, 1)  # its time stamp is new
        monkeypatch.setattr("prolip.research.running.result_store.STALE", -1.0)
        assert store.claim(plan, 1)


def test_a_database_of_something_else_is_left_alone(tmp_path):
    with closing(sqlite3.connect(tmp_path / "mine.db")) as mine, mine:
        mine.execute("CREATE TABLE photos (name)")
    before = (tmp_path / "mine.db").read_bytes()
    for reading in (False, True):
        with pytest.raises(ProlipError):
            ResultStore(tmp_path / "mine.db", reading=reading)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.db"]
    assert (tmp_path / "mine.db").read_bytes() == before


def test_results_that_cannot_be_written_can_be_shown(photos, tmp_path, monkeypatch):
    plan = plan_on(photos, lines=("zero_shot",))
    run_plan(plan, photos.parent, tmp_path / "r.sqlite", jobs=0)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert Results.read("small", tmp_path / "r.sqlite").done
    assert dry_run(plan, tmp_path / "r.sqlite", 1).done == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "r.sqlite"]


def test_a_result_is_written_once(tmp_path):
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan = store.add_plan(made_up_plan(Run("prolip")), ["a"])
        store.claim(plan, 1)
        store.finish("a", {"accuracy": 0.5}, None, 1.0)
        store.finish("a", {"accuracy": 0.7}, None, 1.0)
        store.finish("a", None, "too late", 1.0)
        assert store.results(plan)[0].result == {"accuracy": 0.5}
        again = store.add_plan(made_up_plan(Run("prolip")), ["a"])
        assert store.status(again).done == 1


def test_a_run_that_kills_its_process_fails_in_the_end(tmp_path):
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan = store.add_plan(made_up_plan(Run("prolip")), ["a"])
        for _ in range(3):
            assert store.claim(plan, 1)
            store.worker_died("a", "exit code -9")
        assert not store.claim(plan, 1)
        assert "exit code -9" in store.results(plan)[0].error
        assert store.retry(plan) == 1
        assert store.claim(plan, 1)


# Running


def test_results_do_not_depend_on_the_workers(photos, tmp_path):
    with ResultStore(tmp_path / "here.sqlite") as here, ResultStore(tmp_path / "there.sqlite") as there:
        plan, jobs, _ = planned(photos, here)
        assert run_jobs(here, plan, jobs, local_pool(0)).done == 13
        other, jobs, _ = planned(photos, there)
        assert run_jobs(there, other, jobs, local_pool(2)).done == 13
        assert accuracies(here, plan) == accuracies(there, other)


@pytest.mark.slow
def test_a_worker_that_dies_loses_only_its_run(photos, tmp_path, monkeypatch):
    """A method from a module that ends every worker which imports it."""
    (tmp_path / "fatal.py").write_text(
        "import multiprocessing, os\n"
        "from prolip import methods\n"
        "class Fatal(methods.get('zero_shot')): pass\n"
        "if multiprocessing.parent_process(): os._exit(3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plan = plan_on(photos, lines=("fatal:Fatal", "prolip"), shots=(1,))
    status = run_plan(plan, photos.parent, tmp_path / "r.sqlite", jobs=2)
    assert (status.done, status.failed) == (2, 2)
    found = Results.read("small", tmp_path / "r.sqlite").runs
    assert {one.run.method for one in found if one.status == "failed"} == {"fatal:Fatal"}


def test_a_failure_is_a_row_and_the_rest_goes_on(photos, tmp_path):
    broken = Experiment(
        "broken",
        "",
        "",
        "few_shot",
        (Line("bad", "Bad", "prolip", {"lam": -1.0}), Line("good", "Good", "prolip", {"lam": 1.0})),
        shots=(1,),
        seeds=(1,),
        views=1,
    )
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan, jobs, _ = planned(photos, store, broken)
        status = run_jobs(store, plan, jobs, local_pool(0))
        assert (status.done, status.failed) == (1, 1)
        notes = build(Results(*store.last_plan("broken"))).notes
        assert any("Bad: 1 runs failed" in note and "lam" in note for note in notes)
        assert store.retry(plan) == 1
        assert run_jobs(store, plan, jobs, local_pool(0)).failed == 1


def test_a_finished_plan_runs_nothing(photos, tmp_path):
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan, jobs, _ = planned(photos, store)
        run_jobs(store, plan, jobs, local_pool(0))
        again, jobs, _ = planned(photos, store)
        assert store.status(again).waiting == 0
        assert run_jobs(store, again, [], local_pool(0)).done == 13


def test_an_experiment_that_is_edited_keeps_the_results_of_its_last_run(photos, tmp_path, monkeypatch):
    """The table shows what was run, from the store; nothing is planned to be shown."""
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan, jobs, made = planned(photos, store)
        run_jobs(store, plan, jobs, local_pool(0))
    before = build(Results.read("small", tmp_path / "r.sqlite"))
    edited = dataclasses.replace(
        SMALL, lines=(Line("prolip", "Renamed", "prolip", {"lam": 0.5}),), shots=(4,)
    )
    monkeypatch.setitem(EXPERIMENTS, "small", edited)
    monkeypatch.setattr("prolip.research.running.plan.make_plan", None)
    found = Results.read("small", tmp_path / "r.sqlite")
    assert found.plan == made
    assert build(found) == before
    assert all(cell.missing == 0 for row in before.rows for cell in row.cells)


def test_a_run_that_two_lines_share_is_run_once_and_shown_in_both(photos, tmp_path):
    same = {"lam": "1/N"}
    twins = dataclasses.replace(SMALL, lines=tuple(Line(x, x, "prolip", same) for x in "ab"), name="twins")
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan, jobs, made = planned(photos, store, twins, shots=(1,), seeds=(1,))
        assert (len(made.runs), store.status(plan).total) == (2, 1)
        assert run_jobs(store, plan, jobs, local_pool(0)).done == 1
        first, second = build(Results(*store.last_plan("twins"))).rows
    assert first.cells == second.cells


def test_a_damaged_file_of_features_is_written_again(photos):
    """A flipped byte in a tensor, half a file, and an empty one; a run that reads one fails with one line."""
    plan = plan_on(photos)
    jobs = prepare(plan, photos.parent)
    (path,) = {file for job in jobs for file in job.files}
    path = Path(path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    for damaged in (bytes(flipped), whole[: len(whole) // 2], b""):
        path.write_bytes(damaged)
        assert [job.key for job in prepare(plan, photos.parent)] == [job.key for job in jobs]
        assert is_intact(path)
    path.write_bytes(whole[: len(whole) // 2])
    with local_pool(0) as pool:
        result, error, _ = pool.submit(jobs[0]).result()
    assert result is None
    assert error.startswith("InputError: ")


def test_the_device_reaches_the_towers_of_a_worker(photos, monkeypatch):
    devices = []

    def load(name, device="auto"):
        devices.append(device)
        return TinyEncoder()

    run = Run("zero_shot", shots=1, protocol="test_time_prolip", dataset="photos", encoder="offline")
    (job,) = prepare(dataclasses.replace(plan_on(photos), runs=(run,)), photos.parent)
    encoded_dataset._load.cache_clear()
    monkeypatch.setattr("prolip.encoders.load", load)
    monkeypatch.setitem(PROTOCOLS, "test_time_prolip", functools.partial(adapt_at_test_time, views=2))
    with local_pool(0, "cuda:7") as pool:
        _, error, _ = pool.submit(job).result()
    encoded_dataset._load.cache_clear()
    assert error is None
    assert devices == ["cuda:7"]


class Mine(methods.get("zero_shot")):
    """A method of a user's own."""


def test_any_method_can_be_a_line(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(registry._METHODS, "mine", Mine)
    plan = plan_on(photos, lines=("zero_shot", "mine", "rla"), shots=(1,), seeds=(1,), views=1)
    assert run_plan(plan, photos.parent, tmp_path / "r.sqlite", jobs=0).done == 3
    zero, mine, rla = build(Results.read("small", tmp_path / "r.sqlite")).rows
    assert (mine.label, rla.label) == ("mine", "rla")
    assert mine.cells[0].measured == zero.cells[0].measured


def test_a_dry_run_counts_what_is_done_and_times_the_rest(photos, tmp_path):
    results = tmp_path / "r.sqlite"
    half, whole = (plan_on(photos, lines=("prolip",), seeds=seeds) for seeds in ((1,), (1, 2)))
    first = dry_run(half, results, 2)
    assert (first.units, first.done, first.guessed) == (2, 0, 2)
    assert not results.exists()  # nothing is written
    with ResultStore(results) as store:
        plan = store.add_plan(half, ["a", "b"])
        for key in store.claim(plan, 2):
            store.finish(key, {"accuracy": 0.5}, None, seconds=8.0)
    then = dry_run(whole, results, 2)
    assert (then.units, then.done, then.guessed) == (4, 2, 0)
    assert then.seconds == 2 * 8.0 / 2


def test_every_line_runs_with_the_first_seed_before_the_others_do(tmp_path):
    runs = [Run(method, seed=seed) for method in ("zero_shot", "prolip") for seed in (1, 2)]
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan = store.add_plan(made_up_plan(*runs), list("abcd"))
        assert store.claim(plan, 4) == ["a", "c", "b", "d"]


def test_what_was_not_timed_is_guessed_in_proportion():
    """Runs took three times the guess: so will the others."""
    small, large = (Run("prolip", dataset=name, shots=16, model="RN50") for name in ("eurosat", "imagenet"))
    timings, other = Timings(), Run("prolip", {"of": "an earlier version"}, dataset="dtd", model="RN50")
    assert timings.estimate([(large.to_json(), 2)]) == 2 * guess_seconds(large) > 20 * guess_seconds(small)
    timings.add(small.to_json(), 6 * guess_seconds(small), count=2)
    timings.add(other.to_json(), 1000.0)  # is left out
    assert timings.knows(dataclasses.replace(small, seed=9).to_json())
    assert timings.estimate([(small.to_json(), 1), (large.to_json(), 1)]) == pytest.approx(
        3 * (guess_seconds(small) + guess_seconds(large))
    )


def test_a_guess_goes_by_the_encoder():
    """Runs in a file of results have no model, only its encoder."""
    adam = Run("prolip", {"solver": "adam"}, dataset="dtd", shots=16, model="RN50")
    large, small = (dataclasses.replace(adam, encoder=BACKBONES[name]) for name in ("RN50", "ViT-B/16"))
    assert guess_seconds(large) > 4 * guess_seconds(small)
    assert guess_seconds(Run.from_json(large.to_json())) == guess_seconds(large)


def test_training_takes_as_long_as_what_is_trained():
    """A cache has a key for each image, TaskRes a row for each class; both have 300 epochs."""
    cache, rows = (
        Run(method, options, dataset="dtd", shots=16, model="ViT-B/16")
        for method, options in (("clap_tip_adapter_f", {}), ("task_res", {"solver": "sgd"}))
    )
    test = guess_seconds(dataclasses.replace(cache, method="zero_shot"))
    assert guess_seconds(cache) - test == pytest.approx(16 * (guess_seconds(rows) - test))


def test_the_time_left_is_estimated_by_the_runs_of_the_same_line(tmp_path):
    """Three quick runs are done and one slow one: two slow ones are left."""
    runs = [Run(method, seed=k) for method in ("zero_shot", "prolip") for k in range(3)]
    with ResultStore(tmp_path / "r.sqlite") as store:
        plan = store.add_plan(made_up_plan(*runs), list("abcdef"))
        assert store.status(plan).seconds_left is None
        store.claim(plan, 6)
        for key, seconds in zip("abcd", (1.0, 1.0, 1.0, 9.0), strict=True):
            store.finish(key, {}, None, seconds)
        status = store.status(plan)
    assert (status.seconds, status.seconds_left) == (12.0, 18.0)


def test_progress_shows_runs_and_time_left(photos, tmp_path):
    seen = []
    plan = plan_on(photos, lines=("prolip",))
    run_plan(plan, photos.parent, tmp_path / "r.sqlite", jobs=0, progress=lambda *args: seen.append(args))
    status, seconds_left = seen[-1]
    assert (status.finished, status.total, seconds_left) == (4, 4, 0.0)


SWEEP = """
import sys
from prolip.research.running.result_store import ResultStore
from prolip.research.running.run import local_pool, run_jobs
from prolip.research.running.workers import Job
if __name__ == "__main__":
    path, plan, file, *keys = sys.argv[1:]
    with ResultStore(path) as store:
        runs = [one.run for one in store.results(int(plan))]
        jobs = [Job(key, run, (file,)) for key, run in zip(keys, runs)]
        run_jobs(store, int(plan), jobs, local_pool(1))
"""


@pytest.mark.slow
def test_killed_and_started_again_it_ends_the_same(photos, tmp_path):
    with ResultStore(tmp_path / "whole.sqlite") as whole:
        plan, jobs, _ = planned(photos, whole, seeds=tuple(range(1, 5)))
        run_jobs(whole, plan, jobs, local_pool(0))
        expected = accuracies(whole, plan)
    script, path = tmp_path / "sweep.py", tmp_path / "killed.sqlite"
    script.write_text(SWEEP)
    with ResultStore(path) as store:
        plan, jobs, _ = planned(photos, store, seeds=tuple(range(1, 5)))
        command = [sys.executable, script, path, str(plan), jobs[0].files[0], *(job.key for job in jobs)]
        for done in (1, 5):
            sweep = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            deadline = time.monotonic() + 60
            while store.status(plan).done < done and time.monotonic() < deadline:
                time.sleep(0.02)
            os.kill(sweep.pid, signal.SIGKILL)
            sweep.wait()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        assert accuracies(store, plan) == expected


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of another process")
def test_ctrl_c_ends_the_workers_and_releases_their_runs(photos, tmp_path):
    script, path = tmp_path / "sweep.py", tmp_path / "r.sqlite"
    script.write_text(SWEEP)
    with ResultStore(path) as store:
        plan, jobs, _ = planned(photos, store, seeds=tuple(range(1, 40)))
        command = [sys.executable, script, path, str(plan), jobs[0].files[0], *(job.key for job in jobs)]
        sweep = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not store.status(plan).done and time.monotonic() < deadline:
            time.sleep(0.02)
        sweep.send_signal(signal.SIGINT)
        assert sweep.wait(20) != 0
        status = store.status(plan)
        assert status.done
        assert status.running == 0


# Tables


TWO = ("dtd", "eurosat")


def made_up(chosen, measure, datasets=TWO, root=Path(), **options):
    """Results that a function of the run makes up."""
    given = {"models": ("RN50",), "shots": (1,), "seeds": (1,), "views": 10, **options}
    plan = make_plan(chosen, root, datasets=datasets, **given)
    return Results(plan, [RunResult(run, "done", measure(run)) for run in plan.runs])


def test_a_table_is_the_mean_over_settings_datasets_and_seeds():
    def accuracy(run):
        value = 0.5 + 0.1 * (run.dataset == "dtd") + 0.02 * run.seed + 0.04 * (run.options.get("lr") == 1e-2)
        return {"accuracy": value}

    table = build(made_up(SMALL, accuracy, shots=(1, 2), seeds=(1, 2)))
    zero, exact, adam = table.rows
    assert table.columns == ("1", "2")
    assert exact.cells[0].measured == pytest.approx(58.0)
    assert exact.cells[0].std == pytest.approx(1.0)  # 57 and 59 over the seeds
    assert adam.cells[1].measured == pytest.approx(60.0)
    assert zero.cells[0].published == 58.89
    assert zero.cells[0].difference is None  # two of the eleven datasets
    assert zero.cells[0].measured == zero.cells[1].measured


SEEDS = tuple(range(1, 11))


def validation_free(**options):
    """The paper's own run of ProLIP and zero-shot, made up."""
    given = {"datasets": ELEVEN, "lines": ("zero_shot", "prolip_adam"), "seeds": SEEDS, **options}
    incomplete = given.pop("incomplete", {})
    found = made_up(experiment("validation_free"), lambda run: {"accuracy": 0.65}, **given)
    return build(dataclasses.replace(found, plan=dataclasses.replace(found.plan, incomplete=incomplete)))


def test_the_papers_own_setting_is_comparable():
    table = validation_free(models=("open_clip:RN50-quickgelu/openai",), shots=(1, 2))
    assert table.rows[1].cells[0].difference == pytest.approx(65.0 - 64.33)
    assert table.reasons == {}


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
    zero, adam = (row.cells[0] for row in table.rows)
    assert (adam.difference, adam.published, adam.why) == (None, 64.33, (reason,))
    assert zero.why == ((reason,) if zero_shot else ())
    shown = render(table, "markdown")
    assert "*ProLIP, Adam, published [a]* | *64.33*" in shown
    assert f"- [a] not compared: {reason}" in shown
    for style in ("markdown", "latex", "csv"):
        assert "64.33" not in render(table, style, with_published=False)
        assert reason not in render(table, style, with_published=False)


def test_a_figure_of_other_shots_is_not_compared():
    found = {"imagenet": 0.6, **dict.fromkeys(experiment("domain").targets, 0.4)}
    for shots, why in (((4,), ()), ((2,), ("2 instead of 4 shots",))):
        names = ("imagenet", *experiment("domain").targets)
        options = {"datasets": names, "lines": ("prolip_adam",), "shots": shots, "seeds": SEEDS}
        (row,) = build(made_up(experiment("domain"), lambda run: {"targets": found}, **options)).rows
        assert {cell.why for cell in row.cells if cell.published is not None} == {why}


def test_a_transfer_from_another_dataset_is_not_compared():
    chosen = experiment("cross_dataset")
    for names in (("caltech101", "dtd"), ("dtd", "imagenet", *(x for x in chosen.targets if x != "dtd"))):
        found = dict.fromkeys(names, 0.5)
        options = {"datasets": names, "lines": ("zero_shot", "prolip_adam"), "shots": (4,), "seeds": SEEDS}
        table = build(made_up(chosen, lambda run, found=found: {"targets": found}, **options))
        zero, adam = table.rows
        why = f"trained on {DATASETS[names[0]].title} instead of ImageNet"
        assert all(why in cell.why for cell in adam.cells if cell.published is not None)
        assert not any(why in cell.why for cell in zero.cells)  # it is not trained


def test_figures_without_columns_of_shots_say_their_shots():
    for entry in EXPERIMENTS.values():
        if entry.layout in ("targets", "base_to_new") and entry.published:
            assert published(entry.published).shots == entry.shots[0], entry.name


def test_the_note_has_the_validation_of_the_runs_and_only_the_papers_views():
    table = build(made_up(experiment("variants"), lambda run: {"accuracy": 0.5}, seeds=(1,)))
    assert "validation shots" in table.notes[0]
    assert "10 of the paper's 300 views" in table.notes
    for name in ("siglip", "newer"):
        chosen = experiment(name)
        views = {"views": chosen.views, "models": chosen.models[:1]}
        notes = build(made_up(chosen, lambda run: {"accuracy": 0.5}, **views)).notes
        assert not any("300 views" in note for note in notes)


def test_figures_of_another_program_are_not_compared():
    """What lies between two programs is not a difference of ours."""
    rows = {
        (name, row): why for name in EXPERIMENTS for _, row, _, _, why in published_rows(experiment(name))
    }
    for name, row in (
        ("few_shot_validation", "PLOT"), ("base_to_new", "CoOp"), ("domain", "TaskRes"),
        ("normalisation", "RN50 BatchNorm"), ("newer", "RN50 ProKeR"),
    ):  # fmt: skip
        assert rows[name, row]
    for name, row in (("validation_free", "ProLIP"), ("few_shot_validation", "LP++"), ("rla", "RLA")):
        assert rows[name, row] == []


def test_a_line_is_compared_only_with_its_own_options():
    row = published("variants").provenance["ProLIP, lam=1/N, lr=1e-4"]
    entry = experiment("variants")
    (line,) = (line for line in entry.lines if line.key == "lam1/N_lr1e-4")
    assert row.differences(line, entry) == []
    for other in (
        {"options": {**line.options, "lr": 1e-3}}, {"over": ({"lr": 1e-4}, {"lr": 1e-3})},
        {"template": "photo"}, {"validation": "shots"}, {"method": "rla"}, {"scale": 0.5},
        {"options": {**line.options, "view_area": 0.08}},
    ):  # fmt: skip
        assert len(row.differences(dataclasses.replace(line, **other), entry)) == 1


def test_an_incomplete_dataset_is_noticed(photos, tmp_path, monkeypatch):
    known = find_dataset("dtd")
    sizes = {"train": 18, "test": 12}
    for classes, expected in ((3, {}), (4, {"photos": "3 of 4 classes"})):
        dataset = dataclasses.replace(known, name="photos", sizes=sizes, classes=classes)
        monkeypatch.setitem(DATASETS, "photos", dataset)
        plan = plan_on(photos, lines=("zero_shot",), models=("offline",))
        run_plan(plan, photos.parent, tmp_path / f"{classes}.sqlite", jobs=0)
        assert Results.read("small", tmp_path / f"{classes}.sqlite").plan.incomplete == expected


def test_what_is_missing_is_found_before_encoding(photos, tmp_path, monkeypatch):
    def prepare_nothing(*args, **options):
        raise AssertionError("it began to encode")

    monkeypatch.setattr("prolip.research.running.run.prepare", prepare_nothing)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError):
        plan_on(photos, experiment("umap"))
    with pytest.raises(ProlipError):
        run_plan(plan_on(photos), photos.parent, tmp_path, jobs=0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError):
        run_plan(plan_on(photos), photos.parent, tmp_path / "r.sqlite", ray="local")


def test_missing_runs_put_a_star_on_the_figure():
    whole = made_up(SMALL, lambda run: {"accuracy": 0.5}, ("dtd",), lines=("prolip",), seeds=(1, 2))
    runs = [whole.runs[0], dataclasses.replace(whole.runs[1], status="waiting", result=None)]
    table = build(dataclasses.replace(whole, runs=runs))
    assert "50.00*" in render(table, "markdown")
    assert any("1 of 2 runs are not done" in note for note in table.notes)


def test_per_dataset_lines_are_compared_one_by_one(photos):
    chosen, datasets = experiment("per_dataset"), ("dtd", "photos")
    table = build(
        made_up(chosen, lambda run: {"accuracy": 0.5}, datasets, photos.parent, lines=("zero_shot",))
    )
    dtd, photos = table.rows
    assert dtd.cells[0].published == 42.69
    assert dtd.cells[0].difference == pytest.approx(50 - 42.69)
    assert photos.cells[0].published is None


def test_base_to_new_has_both_total_harmonic_means():
    halves = {"dtd": (0.7, 0.5), "eurosat": (0.9, 0.6)}
    table = build(
        made_up(
            experiment("base_to_new"),
            lambda run: dict(zip(("base", "new"), halves[run.dataset], strict=True)),
            lines=("prolip_adam",),
            shots=(4,),
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
    found = {"imagenet": 0.6, "imagenet_v2": 0.5, "imagenet_a": 0.2}
    table = build(
        made_up(
            experiment("domain"),
            lambda run: {"targets": found},
            datasets=("imagenet", "imagenet_v2", "imagenet_a"),
            lines=("prolip_adam",),
            shots=(4,),
            seeds=SEEDS,
        )
    )
    cells = dict(zip(table.columns, table.rows[0].cells, strict=True))
    assert cells["OOD"].measured == pytest.approx(35)
    assert cells["average"].measured == pytest.approx(100 * 1.3 / 3)
    assert cells["ImageNet"].published == 62.55
    assert cells["OOD"].published == 43.20
    assert cells["ImageNet"].difference == pytest.approx(60 - 62.55)
    assert cells["OOD"].difference is None  # two of four variants


def test_formats_hold_the_same_figures():
    table = build(made_up(SMALL, lambda run: {"accuracy": 0.6543}, datasets=ELEVEN, lines=("zero_shot",)))
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert float(rows[0]["measured"]) == 65.43
    assert float(rows[0]["published"]) == 58.89
    assert float(rows[0]["difference"]) == 6.54
    assert "| Zero-shot | 65.43 |" in render(table, "markdown")
    assert "Zero-shot & 65.43 \\\\\n\\quad published & 58.89" in render(table, "latex")
    with pytest.raises(UsageError):
        render(table, "word")


def ranked(**options):
    """Three lines on two datasets: 80, 70 and 60 % on average."""
    level = {"zero_shot": 0.7, "prolip": 0.8, "adam": 0.6}

    def result(run):
        value = level[run.line] + 0.02 * (run.dataset == "dtd") + 0.01 * (run.seed == 2)
        return {"accuracy": value, "calibration_error": 1 - level[run.line]}

    return made_up(SMALL, result, seeds=(1, 2), **options)


def test_latex_marks_the_best_and_the_second_best():
    text = render(build(ranked()), "latex")
    assert r"ProLIP, exact & \textbf{81.50 $\pm$ 0.50} & \textbf{20.00" in text
    assert r"Zero-shot & \underline{71.00} & \underline{30.00}" in text  # zero-shot has one draw
    assert text.count(r"\textbf") == text.count(r"\underline") == 2
    assert text.count("{") == text.count("}")
    assert r"\%" in text.split(r"\caption")[1].splitlines()[0]


def test_lines_are_compared_over_datasets():
    rng = np.random.default_rng(0)
    noise = {(x, line): rng.normal() for x in ELEVEN for line in ("prolip", "adam", "zero_shot")}

    def result(run):
        return {"accuracy": 0.5 + 0.02 * noise[run.dataset, run.line], "calibration_error": 0.1}

    found = made_up(SMALL, result, ELEVEN, seeds=(1, 2))
    (base,) = (line for line in found.lines if line.key == "prolip")
    table = compare(dataclasses.replace(found, against=base))
    rows = {row.label: dict(zip(table.columns, row.cells, strict=True)) for row in table.rows}
    gaps = [2 * (noise[name, "adam"] - noise[name, "prolip"]) for name in ELEVEN]
    low, high = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    adam = rows["ProLIP, Adam"]
    assert adam["difference"].gain == pytest.approx(np.mean(gaps))
    assert adam["difference"].interval == pytest.approx((high - low) / 2)
    assert adam["p"].measured == pytest.approx(stats.wilcoxon(gaps).pvalue)
    assert adam["better on"].measured == sum(gap > 0 for gap in gaps)
    assert adam["ECE"].measured == pytest.approx(10)
    ranks = [
        sum(noise[x, line] >= noise[x, "adam"] for line in ("prolip", "adam", "zero_shot")) for x in ELEVEN
    ]
    assert adam["rank"].measured == pytest.approx(np.mean(ranks))
    assert rows["ProLIP, exact"]["p"].measured is None  # the line itself


def test_a_gain_on_unfinished_lines_has_a_star():
    whole = ranked()
    (zero,) = (line for line in whole.lines if line.key == "zero_shot")
    runs = [
        dataclasses.replace(one, status="waiting", result=None)
        if one.run.line == "prolip" and one.run.dataset == "dtd"
        else one
        for one in whole.runs
    ]
    shown = render(build(dataclasses.replace(whole, runs=runs, against=zero)), "markdown")
    assert "+10.50 ± 6.35*" in shown
    assert "left out" in compare(dataclasses.replace(whole, runs=runs)).notes[0]
    (exact,) = (line for line in whole.lines if line.key == "prolip")
    shown = render(build(dataclasses.replace(whole, runs=runs, against=exact)), "markdown")
    assert len(re.findall(r"[-+]\d+\.\d+ ± \d+\.\d+\*", shown)) == 4  # both others, accuracy and ECE


def test_lines_are_compared_once_one_is_complete():
    whole = ranked()
    runs = [dataclasses.replace(one, status="waiting", result=None) for one in whole.runs]
    with pytest.raises(UsageError):
        compare(dataclasses.replace(whole, runs=runs))


@pytest.mark.every_environment  # Parquet is an extra
def test_every_run_is_a_row(tmp_path):
    found = ranked(lines=("prolip",))
    assert write_rows.write(found.rows(), tmp_path / "rows.csv") == 4
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [(row["dataset"], row["shots"], row["seed"]) for row in rows][:2] == [
        ("dtd", "1", "1"),
        ("dtd", "1", "2"),
    ]
    assert [float(row["score"]) for row in rows] == pytest.approx([0.82, 0.83, 0.8, 0.81])
    with pytest.raises(UsageError):
        write_rows.write(found.rows(), tmp_path / "rows.txt")
    parquet = pytest.importorskip("pyarrow.parquet")
    write_rows.write(found.rows(), tmp_path / "rows.parquet")
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == list(found.rows())


@pytest.mark.parametrize("width", [40, 60, 10_000])
def test_a_table_that_is_too_wide_for_the_terminal_is_printed_in_parts(width):
    rich = pytest.importorskip("rich.console")
    table = build(ranked(shots=(1, 2, 4, 8, 16)))
    parts = rich_tables(table, width)
    stream = io.StringIO()
    console = rich.Console(file=stream, width=width, no_color=True)
    for part in parts:
        console.print(part)
    shown = stream.getvalue()
    assert max(map(len, (line.rstrip() for line in shown.splitlines()))) <= width
    assert shown.count("81.50 ± 0.50") == 5
    assert (len(parts) > 1) == (width < 100)


def test_parameters_are_counted_without_a_run():
    table = parameters(experiment("parameters"))
    for row in table.rows[:4]:
        assert round(row.cells[0].measured, 3) == row.cells[0].published
    assert any(row.label.startswith("rla") and row.cells[0].measured == 1.048576 for row in table.rows)


def against(accuracy, base="zero_shot", seeds=(1, 2, 3, 4)):
    results = made_up(SMALL, accuracy, lines=("zero_shot", "prolip", "adam"), seeds=seeds)
    (other,) = (line for line in results.lines if line.key == base)
    return build(dataclasses.replace(results, against=other))


def test_the_difference_to_another_line_is_paired_by_dataset_and_seed():
    """Against scipy's paired test, on seeds that move both lines far more than they differ."""
    rng = np.random.default_rng(0)
    noise = {(name, seed): rng.normal() for name in ("dtd", "eurosat") for seed in range(1, 5)}

    def accuracy(run):
        adam = run.options.get("solver") == "adam"
        value = 0.5 + 0.1 * run.seed + adam * (0.02 + 0.002 * noise[run.dataset, run.seed])
        return {"accuracy": value}

    zero, exact, adam = against(accuracy, "prolip").rows
    gains = [2 + 0.2 * (noise["dtd", seed] + noise["eurosat", seed]) / 2 for seed in range(1, 5)]
    low, high = stats.ttest_1samp(gains, 0).confidence_interval(0.95)
    assert adam.cells[0].gain == pytest.approx(np.mean(gains))
    assert adam.cells[0].interval == pytest.approx((high - low) / 2)
    assert adam.cells[0].significant
    assert exact.cells[0].gain is None  # the line itself
    assert zero.cells[0].gain == pytest.approx(100 * (0.5 + 0.1) - 100 * (0.5 + 0.1 * 2.5))


def test_a_difference_within_noise_is_not_bold():
    def accuracy(run):
        if run.method == "zero_shot":
            return {"accuracy": 0.5}
        adam = run.options.get("solver") == "adam"
        return {"accuracy": 0.51 + (0.2 if adam else 0.001) * (run.seed % 2)}

    table = against(accuracy)
    clear, noise = table.rows[1].cells[0], table.rows[2].cells[0]
    assert clear.significant
    assert not noise.significant
    assert noise.gain > clear.gain
    shown = render(table, "markdown")
    assert f"**+{clear.gain:.2f} ± {clear.interval:.2f}**" in shown
    assert f"| *+{noise.gain:.2f} ± {noise.interval:.2f}* |" in shown
    assert rf"\textbf{{+{clear.gain:.2f} $\pm$ {clear.interval:.2f}}}" in render(table, "latex")
    assert "gain_95" in render(table, "csv").splitlines()[0]
    one_seed = against(accuracy, seeds=(1,)).rows[1].cells[0]
    assert one_seed.interval is None
    assert not one_seed.significant


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
            method = methods.create(row.method, **row.options, **row.over[0])
            exact = getattr(method, "solver", None) == "exact" or row.method == "cross_modal"
            assert not (exact and row.paper and entry.published), f"{entry.name}: {row.label}"


def test_options_of_single_datasets_reach_their_runs_and_are_known():
    for entry in EXPERIMENTS.values():
        for row in entry.lines:
            for name, options in row.by_dataset.items():
                assert name in ELEVEN
                methods.create(row.method, **row.options, **options)
    some = {"datasets": ("imagenet", "dtd"), "lines": ("prograd",), "shots": (8,), "seeds": (1,)}
    first, second = make_plan(experiment("validation_free"), Path(), **some).runs
    assert first.options["epochs"] == 50
    own = {"teacher": "a texture of {}.", "init": "a texture of", "late_conflict": 0.8}
    assert second.options == {"view_area": 0.08, **own}


def test_keys_of_lines_are_unique():
    for entry in EXPERIMENTS.values():
        keys = [row.key for row in entry.lines]
        assert len(set(keys)) == len(keys), entry.name


def test_options_of_every_line_are_options_of_its_method():
    refused = []
    for entry in EXPERIMENTS.values():
        lacking = missing_methods(entry)
        for row in entry.lines:
            if row.method not in lacking:
                for options in (*row.over, *(row.grid or ({},))):
                    try:
                        methods.create(row.method, **{**row.options, **options})
                    except UsageError as error:
                        refused.append((entry.name, row.key, str(error)))
    assert refused == []


def test_the_grid_is_the_authors():
    assert len(AUTHORS_GRID) == 49
    assert AUTHORS_GRID[0] == {"lr": 1e-2, "lam": 10.0}
    assert AUTHORS_GRID[-1]["lam"] == 0.0
    assert AUTHORS_GRID[-1]["lr"] == pytest.approx(1e-8)


# Figures


def measured(run):
    """A result with everything that some protocol measures."""
    value = 0.4 + 0.02 * (run.shots or 32) ** 0.5 + 0.01 * (run.seed % 3)
    stage = {"points": [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], "purity": value, "accuracy": value}
    return {
        "accuracy": value,
        "base": value,
        "new": value - 0.1,
        "targets": dict.fromkeys(run.datasets, value),
        "chosen": (run.grid or ({},))[0],
        "labels": [0, 1, 0],
        "classes": ["a", "b"],
        "before": stage,
        "after": stage,
        "seconds": value,
    }


@pytest.mark.parametrize("name", [name for name, entry in EXPERIMENTS.items() if entry.lines])
def test_every_table_and_figure_of_the_paper_comes_out(tmp_path, monkeypatch, name):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("prolip.research.running.plan._PACKAGES", {})
    entry = experiment(name)
    seeds = entry.seeds[:1] if name == "grid_search" else entry.seeds
    options = {"models": entry.models, "shots": entry.shots, "seeds": seeds, "views": 300}
    found = made_up(entry, measured, (*entry.datasets, *entry.targets), **options)
    table = build(found)
    assert all(cell.measured is not None for row in table.rows for cell in row.cells if cell)
    if any(not why for *_, why in published_rows(entry)):
        assert any(cell.difference is not None for row in table.rows for cell in row.cells if cell)
    for style in ("markdown", "latex", "csv"):
        assert len(render(table, style).splitlines()) > len(table.rows)
    figures.save(figures.draw(found), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["validation_free", "views", "complementarity", "base_to_new", "variants"])
def test_models_are_not_mixed(name):
    """Two models that differ by 20 points: every table and every panel shows one of them."""
    pytest.importorskip("matplotlib")
    entry = experiment(name)
    keys = tuple(row.key for row in entry.lines if row.method.startswith(("zero_shot", "prolip")))

    def result(run):
        value = 0.5 + 0.2 * ("ViT" in run.model)
        return {"accuracy": value, "base": value, "new": value}

    collected = made_up(entry, result, models=("RN50", "ViT-B/16"), lines=keys, shots=(1, 2), seeds=(1, 2))
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
    found = made_up(
        experiment("per_dataset"),
        lambda run: {"accuracy": 0.4 + 0.3 * (run.dataset == "dtd")},
        lines=("prolip",),
        shots=(1, 2),
    )
    panels = {axes.get_title(): axes for axes in figures.draw(found).axes if axes.get_visible()}
    assert panels.keys() == {"DTD", "EuroSAT"}
    for name, value in (("DTD", 70), ("EuroSAT", 40)):
        assert list(panels[name].lines[0].get_ydata()) == pytest.approx([value, value])


def test_an_unfinished_figure_says_so():
    """One line has both datasets, the other only one and there only one of two seeds."""
    pytest.importorskip("matplotlib")
    whole = made_up(
        SMALL, lambda run: {"accuracy": 0.5}, lines=("prolip", "adam"), shots=(1, 2), seeds=(1, 2)
    )
    assert figures.draw(whole)._supxlabel is None
    runs = [
        dataclasses.replace(one, status="waiting", result=None)
        if one.run.line == "adam" and (one.run.dataset, one.run.seed) != ("dtd", 1)
        else one
        for one in whole.runs
    ]
    figure = figures.draw(dataclasses.replace(whole, runs=runs))
    note = figure._supxlabel.get_text().replace("\n", " ")
    assert "Unfinished: 12 of 24 runs are missing" in note
    assert "ProLIP, Adam: only DTD" in note
    hollow = [one for one in figure.axes[0].lines if one.get_markerfacecolor() == "white"]
    assert [list(one.get_xdata()) for one in hollow] == [[0, 1]]
    assert hollow[0].get_color() == figure.axes[0].lines[1].get_color()


def test_nothing_done_is_nothing_to_draw():
    with pytest.raises(figures.InputError):
        figures.draw(dataclasses.replace(made_up(SMALL, lambda run: {}), runs=[]))


def test_a_run_from_images_to_table(photos, tmp_path):
    results = tmp_path / "r.sqlite"
    options = {"lines": ("zero_shot", "prolip"), "shots": (2,), "seeds": (1, 2), "views": 1}
    plan = plan_on(photos, experiment("base_to_new"), **options)
    status = run_plan(plan, photos.parent, results, jobs=0)
    assert (status.done, status.failed, status.total) == (3, 0, 3)
    table = build(Results.read("base_to_new", results))
    assert [row.label for row in table.rows] == ["Zero-shot", "ProLIP, exact"]
    with pytest.raises(NotRunError):
        Results.read("views", results)


# Through the towers


@pytest.fixture
def encoded(photos, monkeypatch):
    """The photos as an encoded dataset, with its encoder."""
    monkeypatch.setattr(encoded_dataset, "_load", lambda encoder, device: TinyEncoder())
    return read_encoded(prepare(plan_on(photos), photos.parent)[0].files[0])


def test_the_images_of_a_draw_are_those_of_its_features(encoded):
    run = Run("zero_shot", shots=2, seed=2)
    chosen = run.draw(encoded).train
    assert chosen == sample_support(encoded.splits["train"].labels, 2, 2)
    task, images = run.task(encoded, chosen), encoded.images("train", chosen)
    assert len(images) == task.n == 6
    encoder = encoded.load_encoder()
    for i, image in enumerate(images):
        again = encoder.encode(encoder.preprocess.centre(image)[None])
        assert np.allclose(again[0], task.x[0, i], atol=1e-6)


def test_at_test_time_one_step_leaves_the_model_almost_as_it_was(encoded):
    """The step is 1e-4 a weight: accuracy stays, and only the given targets are measured."""
    run = Run("zero_shot", shots=1)
    plain = transfer(encoded, run, [encoded])
    stepped = adapt_at_test_time(encoded, run, [encoded], views=3)
    assert stepped["targets"].keys() == plain["targets"].keys() == {"photos"}
    assert stepped["accuracy"] == pytest.approx(plain["accuracy"], abs=0.1)
    with pytest.raises(InputError):
        adapt_at_test_time(dataclasses.replace(encoded, encoder=""), run)


def test_seconds_stand_beside_those_of_the_first_line():
    entry = experiment("timing")
    found = made_up(entry, lambda run: {"seconds": 1.0 if run.options.get("solver") == "adam" else 3.0})
    rows = {row.label: [cell.measured for cell in row.cells] for row in build(found).rows}
    assert rows["ProLIP, Adam"] == [1.0, 1.0]
    assert rows["CLAP"] == [3.0, 3.0]


def test_a_loss_of_accuracy_is_that_against_the_authors_rate():
    entry = experiment("domain_lr")

    def result(run):
        value = 0.5 if run.options.get("lr") == 1e-2 else 0.6
        return {"accuracy": value, "targets": dict.fromkeys(run.datasets, value)}

    table = build(made_up(entry, result, (*entry.datasets, *entry.targets), models=entry.models))
    column = table.columns.index("OOD difference")
    losses = {row.label: row.cells[column] for row in table.rows}
    assert losses["ProLIP"] is None
    assert losses["ProLIP, lr=1e-2"].measured == pytest.approx(-10)
    assert losses["ProLIP, lr=1e-2"].published == -0.18
