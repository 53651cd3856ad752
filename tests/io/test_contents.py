"""A second look at files touches their entries and no more; a file that changed is read."""

from __future__ import annotations

import importlib
import os
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from prolip.features import FeatureStore, extract
from prolip.features import store as module
from prolip.features.images import open_image
from prolip.io.files import file_state
from test_features import Fake, noise

STATE = (5, 10**9, 10**9, 7)


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    """Files of these tests are a moment old."""
    monkeypatch.setattr(module, "_SETTLED", -60.0)


@pytest.fixture
def photos(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for i, path in enumerate(paths):
        noise(i).save(path)
    return paths


@pytest.fixture
def opened(monkeypatch):
    """Names of the files that were read."""
    names = []

    def note(source, name):
        names.append(name)
        return open_image(source, name)

    monkeypatch.setattr(importlib.import_module("prolip.features.extract"), "open_image", note)
    return names


def test_a_second_run_opens_no_file(photos, tmp_path, opened):
    first = extract(Fake(), photos, store=FeatureStore(tmp_path / "store"))
    assert len(opened) == 6
    second = extract(Fake(), photos, store=FeatureStore(tmp_path / "store"))
    assert len(opened) == 6
    assert (second.encoded, second.hashes, second.kept) == (0, first.hashes, first.kept)
    np.testing.assert_array_equal(second.features, first.features)


def test_changed_new_and_touched_files_are_read(photos, tmp_path, opened):
    extract(Fake(), photos, store=FeatureStore(tmp_path / "store"))
    opened.clear()
    noise(50).save(photos[1])
    os.utime(photos[2], ns=(0, 0))
    before = photos[3].stat()
    photos[3].write_bytes(photos[4].read_bytes())
    os.utime(photos[3], ns=(before.st_atime_ns, before.st_mtime_ns))  # the time of change cannot be set back
    noise(51).save(tmp_path / "new.png")
    found = extract(Fake(), [*photos, tmp_path / "new.png"], store=FeatureStore(tmp_path / "store"))
    read = [photos[1], photos[2], photos[3], tmp_path / "new.png"]
    assert sorted(opened) == sorted(map(str, read))
    assert found.encoded == 2
    assert found.hashes[3] == found.hashes[4]


def test_another_view_or_encoder_reads_the_file(photos, tmp_path, opened):
    extract(Fake(), photos, store=FeatureStore(tmp_path / "store"))
    opened.clear()
    assert extract(Fake(), photos, views=(0, 1), store=FeatureStore(tmp_path / "store")).encoded == 6
    other = Fake()
    other.fingerprint = "other"
    assert extract(other, photos, store=FeatureStore(tmp_path / "store")).encoded == 6
    assert len(opened) == 12


def test_a_file_that_changed_a_moment_ago_is_not_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SETTLED", 2.0)
    contents, now = FeatureStore(tmp_path / "store"), file_state(tmp_path)
    contents.remember([("a", now, b"k" * 32)])
    assert contents.known("a", now) is None
    contents.remember([("a", STATE, b"k" * 32)])
    assert contents.known("a", STATE) == b"k" * 32


def test_relative_paths_are_those_of_the_folder(tmp_path, monkeypatch):
    contents = FeatureStore(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    contents.remember([("a", STATE, b"k" * 32)])
    assert contents.known(str(tmp_path / "a"), STATE) == b"k" * 32
    assert contents.known("b", STATE) is None
    assert contents.known("a", (6, *STATE[1:])) is None


def test_a_damaged_entry_is_not_believed(tmp_path):
    FeatureStore(tmp_path).remember([("a", STATE, b"k" * 32)])
    table = sqlite3.connect(tmp_path / "features.sqlite")
    with table:
        table.execute("UPDATE contents SET key = replace(key, 'k', 'l')")
    table.close()
    assert FeatureStore(tmp_path).known("a", STATE) is None


def test_a_place_that_cannot_be_written_is_gone_without(tmp_path):
    (tmp_path / "file").touch()
    contents = FeatureStore(tmp_path / "file")
    contents.remember([("a", STATE, b"k" * 32)])
    assert contents.known("a", STATE) is None


def test_threads_and_processes_share_a_table(tmp_path):
    path = tmp_path / "store"
    program = (
        "import sys; from prolip.features.store import FeatureStore as S\n"
        "for i in range(50): S(sys.argv[1]).remember([(f'{sys.argv[2]}{i}', (1, 2, 3), b'k' * 32)])"
    )
    others = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "xy"]
    contents = FeatureStore(path)
    threads = [
        threading.Thread(
            target=lambda j=j: [contents.remember([(f"{j}-{i}", STATE, b"k" * 32)]) for i in range(25)]
        )
        for j in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait(60) for other in others] == [0, 0]
    assert all(contents.known(f"{j}-{i}", STATE) for j in range(4) for i in range(25))
    assert all(contents.known(f"{name}{i}", (1, 2, 3)) for name in "xy" for i in range(50))


def test_a_file_that_another_process_has_locked_costs_one_short_wait(photos, tmp_path, monkeypatch):
    extract(Fake(), photos, store=FeatureStore(tmp_path / "store"))
    monkeypatch.setattr(module, "_TIMEOUT", 0.5)
    other = sqlite3.connect(tmp_path / "store" / "features.sqlite")
    other.execute("BEGIN EXCLUSIVE")
    store, began = FeatureStore(tmp_path / "store"), time.monotonic()
    store.required = False
    with pytest.warns(UserWarning, match="locked"):
        found = extract(Fake(), photos, store=store)
    waited = time.monotonic() - began
    other.rollback()
    other.close()
    assert len(found.kept) == len(photos)
    assert waited < 3
