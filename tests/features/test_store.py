"""The store of features: files that have not changed are not opened, and a store that fails costs time."""

import importlib
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from prolip.core import ProlipError
from prolip.features import FeatureStore, extract
from prolip.features.store import Space
from test_features import WIDTH, Fake, noise

STATE = (5, 10**9, 10**9, 7)


@pytest.fixture
def photos(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for i, path in enumerate(paths):
        noise(i).save(path)
    return paths


@pytest.fixture
def opened(monkeypatch):
    """Names of the files that were read."""
    module = importlib.import_module("prolip.features.extract")
    names, plain = [], module.open_image
    monkeypatch.setattr(
        module, "open_image", lambda source, name: (names.append(name), plain(source, name))[1]
    )
    return names


def test_a_second_run_opens_no_file(photos, tmp_path, opened):
    first = extract(Fake(), photos, views=(0, 1), store=FeatureStore(tmp_path / "store"))
    assert len(opened) == 6
    second = extract(Fake(), photos, views=(1, 0), store=FeatureStore(tmp_path / "store"))
    assert len(opened) == 6
    assert (second.encoded, second.hashes, second.kept) == (0, first.hashes, first.kept)
    np.testing.assert_array_equal(second.features, first.features[::-1])


def test_changed_new_and_touched_files_are_read(photos, tmp_path, opened):
    store = FeatureStore(tmp_path / "store")
    extract(Fake(), photos, store=store)
    opened.clear()
    noise(50).save(photos[1])
    os.utime(photos[2], ns=(0, 0))
    noise(51).save(tmp_path / "new.png")
    found = extract(Fake(), [*photos, tmp_path / "new.png"], store=store)
    assert sorted(opened) == sorted([str(photos[1]), str(photos[2]), str(tmp_path / "new.png")])
    assert found.encoded == 2


def test_a_file_is_known_by_its_absolute_path_and_state(tmp_path, monkeypatch):
    store = FeatureStore(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    store.remember([("a", STATE, b"k" * 32)])
    asked = [(str(tmp_path / "a"), STATE), ("b", STATE), ("a", (6, *STATE[1:]))]
    assert store.known(asked) == [b"k" * 32, None, None]


def test_many_rows_come_back_at_once(tmp_path):
    space = FeatureStore(tmp_path).space(Fake())
    keys = [i.to_bytes(32, "big") for i in range(1201)]
    rows = np.random.default_rng(0).normal(size=(1201, WIDTH)).astype(np.float32)
    space.add(keys, [i % 2 for i in range(1201)], rows)
    found = FeatureStore(tmp_path).space(Fake()).get([*keys, b"x"])
    assert len(found) == 1201
    assert all(np.array_equal(found[key, i % 2], rows[i]) for i, key in enumerate(keys))


def test_the_oldest_rows_go_first(tmp_path):
    store = FeatureStore(tmp_path)
    store.limit = 1 << 20
    space, keys = Space(store, "a", 1000), [i.to_bytes(2, "big") for i in range(400)]
    for i, key in enumerate(keys):
        space.add([key], [0], np.full((1, 1000), i))
    kept = sorted(int.from_bytes(key, "big") for key, _ in space.get(keys))
    assert kept == list(range(kept[0], 400))
    assert 150 < len(kept) < 260
    assert store.path.stat().st_size < 2 << 20


# --- stores that fail


def scribble(path: Path) -> None:
    path.write_bytes(b"nonsense" * 2000)


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE VIEW endless AS SELECT 1")


def older(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 4")


@pytest.mark.parametrize("damage", [scribble, foreign, older])
def test_the_cache_is_made_anew_and_a_folder_that_was_named_is_left_alone(photos, damage):
    store = FeatureStore()
    extract(Fake(), photos, store=store)
    damage(store.path)
    before = store.path.read_bytes()
    with pytest.raises(ProlipError):
        extract(Fake(), photos, store=FeatureStore(store.root))
    assert store.path.read_bytes() == before
    assert extract(Fake(), photos, store=FeatureStore()).encoded == 6
    assert extract(Fake(), photos, store=FeatureStore(store.root, renew=True)).encoded == 0


def test_a_file_in_the_way_of_the_cache_is_said_and_costs_nothing_else(photos, monkeypatch):
    monkeypatch.setenv("PROLIP_CACHE", str(photos[0]))
    with pytest.warns(UserWarning, match="not stored"):
        assert extract(Fake(), photos, store=FeatureStore()).encoded == 6
    with pytest.raises(ProlipError):
        extract(Fake(), photos, store=FeatureStore(photos[0]))


def test_a_full_disk_keeps_what_is_there(tmp_path):
    resource = pytest.importorskip("resource")
    space = FeatureStore(tmp_path).space(Fake())
    space.add([b"k" * 32], [0], np.ones((1, WIDTH)))
    limit, handled = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, limit[1]))
    try:
        with pytest.raises(ProlipError):
            space.add([i.to_bytes(32, "big") for i in range(5000)], [0] * 5000, np.ones((5000, WIDTH)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handled)
    assert len(FeatureStore(tmp_path).space(Fake()).get([b"k" * 32])) == 1
    space.add([b"l" * 32], [0], np.ones((1, WIDTH)))
