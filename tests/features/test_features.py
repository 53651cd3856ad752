"""Extraction and the store: encode once, resume, notice what changed, refuse what is damaged."""

from __future__ import annotations

import importlib
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prolip.core.errors import InputError
from prolip.core.head import Head
from prolip.encoders import Encoder, Preprocess
from prolip.features import FeatureStore, ImageError, extract

extract_module = importlib.import_module("prolip.features.extract")  # its function goes by the same name
WIDTH = 24


def assert_same(a: np.ndarray, b: np.ndarray) -> None:
    """Equal, but for the rounding of batches of another size."""
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


class Fake(Encoder):
    """A fixed random projection of coarse pixels, which counts what it sees and may fail."""

    def __init__(self, fail_after: int | None = None, error: BaseException | None = None, size: int = 8):
        self.name = "fake"
        self.fingerprint = "f" * 64
        self.head = Head(np.eye(WIDTH, dtype=np.float32))
        self.preprocess = Preprocess(size, (0.5,) * 3, (0.5,) * 3)
        self.device = "cpu"
        self.batch_size = 4
        self.projection = np.random.default_rng(0).normal(size=(size * size * 3, WIDTH)).astype(np.float32)
        self.batches: list[int] = []
        self.fail_after, self.error = fail_after, error or RuntimeError("the tower fell")

    def encode(self, pixels):
        if self.fail_after is not None and len(self.batches) >= self.fail_after:
            raise self.error
        self.batches.append(len(pixels))
        return pixels.reshape(len(pixels), -1).astype(np.float32) / 255 @ self.projection

    def encode_text(self, prompts: Sequence[str]):
        raise AssertionError("extraction asks for no text")

    def by_hand(self, image: Image.Image) -> np.ndarray:
        """The centre view of an image, through the same projection, without the extractor."""
        pixels = np.array(self.preprocess.centre(image), dtype=np.float32)
        return pixels.ravel() / 255 @ self.projection


def noise(seed: int, size: tuple[int, int] = (20, 14)) -> Image.Image:
    width, height = size
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.fixture
def photos(tmp_path) -> list[Path]:
    """Ten different PNG files."""
    folder = tmp_path / "photos"
    folder.mkdir()
    paths = [folder / f"{i}.png" for i in range(10)]
    for i, path in enumerate(paths):
        noise(i).save(path)
    return paths


@pytest.fixture
def store(tmp_path) -> FeatureStore:
    return FeatureStore(tmp_path / "store")


def stored(store: FeatureStore) -> int:
    """How many rows another process would find."""
    with closing(sqlite3.connect(store.path)) as database:
        return database.execute("SELECT count(*) FROM rows").fetchone()[0]


# --- extraction


def test_features_are_those_of_the_centre_view(photos):
    encoder = Fake()
    got = extract(encoder, photos)
    assert got.features.shape == (1, 10, WIDTH)
    expected = np.stack([encoder.by_hand(noise(i)) for i in range(10)])
    assert_same(got.features[0], expected)
    assert (got.kept, got.bad, got.encoded) == (list(range(10)), [], 10)
    assert encoder.batches == [4, 4, 2]


def test_paths_pictures_and_arrays_may_be_mixed(photos):
    got = extract(Fake(), [str(photos[0]), noise(0), np.asarray(noise(0)), photos[0].read_bytes()])
    for row in got.features[0, 1:]:
        assert np.array_equal(row, got.features[0, 0])


def test_a_view_depends_on_the_picture_and_its_number_alone(photos):
    whole = extract(Fake(), photos, views=(0, 1, 2))
    assert whole.features.shape == (3, 10, WIDTH)
    backwards = extract(Fake(), photos[::-1], views=(2, 0))
    assert_same(backwards.features[0][::-1], whole.features[2])
    assert_same(backwards.features[1][::-1], whole.features[0])
    assert not np.allclose(whole.features[1], whole.features[2])
    assert not np.allclose(whole.features[0], whole.features[1])


def test_progress_counts_pictures_whose_features_are_there(photos):
    calls = []
    extract(Fake(), photos, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(4, 10), (8, 10), (10, 10)]


def test_loading_stays_one_batch_ahead(monkeypatch):
    loads, seen = [], []
    opened = extract_module.open_image
    monkeypatch.setattr(
        extract_module, "open_image", lambda source, name: (loads.append(name), opened(source, name))[1]
    )
    encoder = Fake()
    encode = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda pixels: (seen.append(len(loads)), encode(pixels))[1])
    extract(encoder, [noise(i) for i in range(60)])
    assert all(4 * (k + 1) <= loaded <= 4 * (k + 2) for k, loaded in enumerate(seen))
    assert len(loads) == 60


# --- bad images and bad features


def test_a_bad_picture_is_an_error_that_names_it(photos, store):
    photos[7].write_bytes(photos[7].read_bytes()[:-30])
    with pytest.raises(ImageError) as raised:
        extract(Fake(), photos, store=store)
    assert raised.value.name == str(photos[7])
    assert extract(Fake(), photos[:4], store=store).encoded == 0  # the first batch was kept


def test_bad_pictures_can_be_skipped(photos, store):
    photos[3].write_bytes(b"no image")
    photos[8].write_bytes(b"no image")
    for encoded in (8, 0):
        got = extract(Fake(), photos, views=(0, 1), store=store, skip_bad=True)
        assert got.kept == [0, 1, 2, 4, 5, 6, 7, 9]
        assert [Path(name).name for name, _ in got.bad] == ["3.png", "8.png"]
        assert all("not an image" in reason for _, reason in got.bad)
        assert got.features.shape == (2, 8, WIDTH)
        assert len(got.hashes) == 8
        assert got.encoded == 2 * encoded
    assert_same(got.features[0, 7], Fake().by_hand(noise(9)))


def test_at_most_a_fraction_of_bad_pictures_is_skipped(photos):
    photos[3].write_bytes(b"no image")
    assert len(extract(Fake(), photos, skip_bad=0.1).kept) == 9
    photos[8].write_bytes(b"no image")
    with pytest.raises(InputError) as raised:
        extract(Fake(), photos, skip_bad=0.1)
    assert "3.png" in str(raised.value)
    assert "8.png" in str(raised.value)


def test_no_images_are_an_error_and_none_that_can_be_read_leave_no_features(photos):
    with pytest.raises(InputError):
        extract(Fake(), [])
    photos[0].write_bytes(b"")
    got = extract(Fake(), photos[:1], skip_bad=True)
    assert (got.features.shape, got.kept, len(got.bad)) == ((1, 0, WIDTH), [], 1)


def test_features_that_are_not_finite_name_the_picture_and_are_not_kept(photos, store):
    encoder = Fake()
    encode = encoder.encode

    def spoilt(pixels):
        rows = encode(pixels)
        if len(encoder.batches) == 2:
            rows[1, 3] = np.nan
        return rows

    encoder.encode = spoilt
    with pytest.raises(InputError):
        extract(encoder, photos, store=store)
    assert stored(store) == 4


# --- the store


@pytest.mark.parametrize("error", [RuntimeError("the tower fell"), KeyboardInterrupt()])
def test_an_interrupted_run_resumes(photos, store, error):
    with pytest.raises(type(error)):
        extract(Fake(fail_after=2, error=error), photos, store=store)
    encoder = Fake()
    got = extract(encoder, photos, store=store)
    assert got.encoded == sum(encoder.batches) == 2  # 8 of 10 were done
    assert_same(got.features, extract(Fake(), photos).features)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prolip-load")]


def test_a_changed_picture_is_noticed_and_a_moved_one_is_not_encoded(photos, store):
    extract(Fake(), photos, store=store)
    noise(99).save(photos[2])
    moved = photos[4].rename(photos[4].with_name("moved.png"))
    now = [moved if path == photos[4] else path for path in photos]
    got = extract(Fake(), now, store=store)
    assert got.encoded == 1
    assert_same(got.features[0, 2], Fake().by_hand(noise(99)))
    assert_same(got.features[0, 4], Fake().by_hand(noise(4)))


def test_two_spaces_do_not_mix(photos, store):
    extract(Fake(), photos, store=store)
    other = Fake()
    other.fingerprint = "0" * 64
    assert extract(other, photos, store=store).encoded == 10
    larger = Fake(size=10)
    assert extract(larger, photos, store=store).encoded == 10
    wider = Fake()
    wider.preprocess = Preprocess(8, (0.5,) * 3, (0.5,) * 3, interpolation="bilinear")
    assert extract(wider, photos, store=store).encoded == 10
    renamed = Fake()
    renamed.name = "the same weights"
    assert extract(renamed, photos, store=store).encoded == 0
