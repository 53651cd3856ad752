"""A second look at files touches their entries and no more; a file that changed is read."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest

from prolip.features import FeatureStore, extract
from prolip.features import contents as module
from prolip.features.contents import Contents
from prolip.features.images import ImageContent
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
    names, plain = [], ImageContent.open.__func__

    def note(cls, source, name):
        names.append(name)
        return plain(cls, source, name)

    monkeypatch.setattr(ImageContent, "open", classmethod(note))
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
    contents, now = Contents(tmp_path / "contents.sqlite"), file_state(tmp_path)
    contents.add([("a", now, b"k" * 32)])
    assert contents.get("a", now) is None
    contents.add([("a", STATE, b"k" * 32)])
    assert contents.get("a", STATE) == b"k" * 32


def test_relative_paths_are_those_of_the_folder(tmp_path, monkeypatch):
    contents = Contents(tmp_path / "contents.sqlite")
    monkeypatch.chdir(tmp_path)
    contents.add([("a", STATE, b"k" * 32)])
    assert contents.get(str(tmp_path / "a"), STATE) == b"k" * 32
    assert contents.get("b", STATE) is None
    assert contents.get("a", (6, *STATE[1:])) is None


def test_a_damaged_table_is_made_again_and_a_damaged_entry_is_not_believed(tmp_path):
    path = tmp_path / "contents.sqlite"
    Contents(path).add([("a", STATE, b"k" * 32)])
    with sqlite3.connect(path) as table:
        table.execute("UPDATE contents SET key = replace(key, 'k', 'l')")
    table.close()
    assert Contents(path).get("a", STATE) is None
    for content in (b"no table at all" * 500, b""):
        path.write_bytes(content)
        contents = Contents(path)
        assert contents.get("a", STATE) is None
        contents.add([("a", STATE, b"k" * 32)])
        assert Contents(path).get("a", STATE) == b"k" * 32


def test_a_place_that_cannot_be_written_is_gone_without(tmp_path):
    (tmp_path / "file").touch()
    contents = Contents(tmp_path / "file" / "contents.sqlite")
    contents.add([("a", STATE, b"k" * 32)])
    assert contents.get("a", STATE) is None


def test_threads_and_processes_share_a_table(tmp_path):
    path = tmp_path / "contents.sqlite"
    program = (
        "import sys; from pathlib import Path; from prolip.features.contents import Contents\n"
        "for i in range(50): Contents(Path(sys.argv[1])).add([(f'{sys.argv[2]}{i}', (1, 2, 3), b'k' * 32)])"
    )
    others = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "xy"]
    contents = Contents(path)
    threads = [
        threading.Thread(
            target=lambda j=j: [contents.add([(f"{j}-{i}", STATE, b"k" * 32)]) for i in range(25)]
        )
        for j in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait(60) for other in others] == [0, 0]
    assert all(contents.get(f"{j}-{i}", STATE) for j in range(4) for i in range(25))
    assert all(contents.get(f"{name}{i}", (1, 2, 3)) for name in "xy" for i in range(50))


def test_a_table_that_another_process_has_locked_costs_one_short_wait(photos, tmp_path, monkeypatch):
    store = FeatureStore(tmp_path / "store")
    extract(Fake(), photos, store=store)
    monkeypatch.setattr(module, "_TIMEOUT", 0.05)
    with sqlite3.connect(store.contents.path) as other:
        other.execute("BEGIN EXCLUSIVE")
        waited = []
        monkeypatch.setattr(Contents, "_pause", _counted(Contents._pause, waited))
        found = extract(Fake(), photos, store=FeatureStore(tmp_path / "store"))
        other.rollback()
    other.close()
    assert (found.encoded, len(waited)) == (0, 1)
    assert len(found.kept) == len(photos)


def _counted(function, calls):
    def counting(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return counting
