"""Damaged images, archives and saved models are errors of ours: no traceback, no hang, bounded memory."""

import contextlib
import io
import random
import resource
import shutil
import tarfile
import time
import warnings
import zipfile

import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier, ProlipError
from prolip.data import read_images
from prolip.features import load_image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
SLOW = pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3 * 3600)])
SECONDS, MEGABYTES = 20, 2000


def damaged(content, rng):
    """Change, remove, repeat or add some bytes, the head of a file more often than the rest."""
    data = bytearray(content)
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(min(len(data), rng.choice((64, 1024, len(data))))) if data else 0
        end = at + rng.randrange(1, 16)
        change = rng.choice(("bytes", "extreme", "cut", "repeat", "end"))
        if change == "bytes":
            data[at:end] = rng.randbytes(len(data[at:end]))
        elif change == "extreme":
            data[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)))
        elif change == "cut":
            del data[at:end]
        elif change == "repeat":
            data[at:at] = data[at:end] * rng.randrange(1, 50)
        else:
            del data[rng.randrange(len(data) + 1) :]
    return bytes(data)


def require_errors_of_ours(use):
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(ProlipError):
            use()
    assert time.monotonic() - started < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000 < MEGABYTES


@pytest.mark.parametrize("times", [1, SLOW])
def test_damaged_images(times):
    rng, files = random.Random(1), []
    for kind in FORMATS:
        file = io.BytesIO()
        blotch(COLOURS["red"], 1, size=96).save(file, kind)
        files.append(file.getvalue())
    for number in range(100 * times):
        content = damaged(files[number % len(files)], rng)
        require_errors_of_ours(lambda: load_image(content, near=64, upload=number % 2 == 0))  # noqa: B023


@pytest.mark.parametrize("times", [1, SLOW])
def test_damaged_archives_and_models(times, colour_model, photos, tmp_path):
    rng = random.Random(2)
    with (
        zipfile.ZipFile(tmp_path / "a.zip", "w") as packed,
        tarfile.open(tmp_path / "a.tar.gz", "w:gz") as other,
    ):
        for path in sorted((photos / "train").rglob("*.png")):
            packed.write(path, path.relative_to(photos))
            other.add(path, path.relative_to(photos))
    colour_model.save(tmp_path / "model")
    for number in range(5 * times):
        for archive in ("a.zip", "a.tar.gz"):
            place = tmp_path / f"{number}-{archive}"
            place.write_bytes(damaged((tmp_path / archive).read_bytes(), rng))
            require_errors_of_ours(lambda: read_images(place))  # noqa: B023
            place.unlink()
        place = tmp_path / f"{number}"
        shutil.copytree(tmp_path / "model", place)
        file = rng.choice(sorted(place.iterdir()))
        file.write_bytes(damaged(file.read_bytes(), rng))
        require_errors_of_ours(lambda: FewShotClassifier.load(place).predict([blotch(COLOURS["red"], 2)]))  # noqa: B023
        shutil.rmtree(place)
