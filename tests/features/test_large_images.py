"""Large images: decoded in full, huge ones and thumbnails smaller, within one memory budget."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from prolip.core.errors import UsageError
from prolip.encoders import Preprocess
from prolip.features import ImageError, extract, load_image
from prolip.features import images as module
from prolip.features.decoder_limits import MemoryBudget
from prolip.features.images import ImageContent, huge_factor
from test_features import Fake, noise

SIXTEEN = Image.fromarray(np.arange(96 * 64, dtype=np.uint16).reshape(64, 96) * 10)


def smooth(width: int, height: int) -> Image.Image:
    return noise(3, (6, 5)).resize((width, height), Image.Resampling.BICUBIC)


def file(image: Image.Image, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("size", "factor"), [((4000, 3000), 1), ((8000, 8000), 1), ((8001, 8000), 2), ((13_300, 13_300), 4)]
)
def test_only_huge_images_are_shrunk(size, factor):
    assert huge_factor(size) == huge_factor(size[::-1]) == factor


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_thumbnail_is_decoded_small_and_much_the_same(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = file(smooth(1000, 700), kind, exif=exif)
    preprocess = Preprocess(32, (0.5,) * 3, (0.5,) * 3)
    small = load_image(data, near=64)
    assert 64 <= min(small.size) < 128
    view = preprocess.centre(small).astype(int)
    # a JPEG's colours are stored at half the size
    assert np.abs(view - preprocess.centre(load_image(data))).max() <= 12


@pytest.mark.parametrize(
    "image",
    [
        smooth(1000, 700).convert("L"),
        smooth(1000, 700).convert("P"),
        smooth(1000, 700).convert("CMYK"),
        Image.merge("RGBA", [*smooth(1000, 700).split(), smooth(1000, 700).convert("L")]),
        smooth(1000, 700).convert("LA"),
        SIXTEEN.resize((1000, 700), Image.Resampling.NEAREST),
        Image.fromarray(np.linspace(0, 1, 700_000, dtype=np.float32).reshape(700, 1000)),
    ],
    ids=["grey", "palette", "inks", "alpha", "grey alpha", "16 bit", "float"],
)
def test_strips_are_the_mean_of_the_whole(image, monkeypatch):
    """A conversion over the whole image, then Pillow's mean of blocks."""
    data = file(image, "TIFF" if image.mode in ("F", "CMYK") else "PNG")
    whole = np.asarray(load_image(data).reduce(10)).astype(int)
    monkeypatch.setattr("prolip.features.pixels._STRIP", 50_000)
    small = np.asarray(load_image(data, near=70))
    assert small.shape == whole.shape
    assert np.abs(small - whole).max() <= 1
    np.testing.assert_array_equal(np.asarray(load_image(data).reduce(10)), whole)


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_path_bytes_pixels_and_arrays_have_the_same_features(tmp_path, mode, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "a.jpg"
    noise(1, (800, 600)).convert(mode).save(path, exif=exif)
    upright = ImageOps.exif_transpose(Image.open(path))
    found = extract(Fake(), [path, path.read_bytes(), Image.open(path), np.asarray(upright)]).features[0]
    expected = Fake().by_hand(upright.convert("RGB"))
    np.testing.assert_allclose(found, np.stack([expected] * 4), rtol=1e-5, atol=1e-4)


# --- files that are none, and those that are too large


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_devices_and_links_to_themselves_are_no_pictures(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    for name, reason in (
        ("pipe", "not a regular file"),
        ("zero", "not a regular file"),
        ("loop", "symbolic links"),
    ):
        with pytest.raises(ImageError, match=reason):
            load_image(tmp_path / f"{name}.jpg")


def test_a_large_file_is_decoded_from_the_disk(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    noise(1).save(path)
    plain = ImageContent.open(path, "a")
    monkeypatch.setattr(module, "_AT_ONCE", 100)
    found = ImageContent.open(path, "a")
    assert (found.key, found.source) == (plain.key, path)
    with found.pixels() as image:
        np.testing.assert_array_equal(np.asarray(image), np.asarray(noise(1)))
    noise(2).save(path)
    with pytest.raises(ImageError), found.pixels():
        pass


def test_the_limit_is_by_memory_and_can_be_raised(monkeypatch):
    data = file(Image.new("RGBA", (1000, 500)), "PNG")
    monkeypatch.setenv("PROLIP_IMAGE_MEMORY", "3")
    with pytest.raises(ImageError):
        load_image(data)
    monkeypatch.setenv("PROLIP_IMAGE_MEMORY", "4")
    assert load_image(data).size == (1000, 500)
    monkeypatch.setenv("PROLIP_IMAGE_MEMORY", "lots")
    with pytest.raises(UsageError):
        load_image(data)


def test_the_budget_is_shared_and_the_large_have_their_turn(monkeypatch):
    monkeypatch.setenv("PROLIP_IMAGE_MEMORY", "10")
    budget, held, most, order = MemoryBudget(), [], [], []

    def use(size):
        with budget.hold(size * 10**6):
            held.append(size)
            most.append(sum(held))
            order.append(size)
            time.sleep(0.01)
            held.remove(size)

    threads = [threading.Thread(target=use, args=[size]) for size in (4, 4, 10, 3, 3, 3, 3, 7)]
    for thread in threads:
        thread.start()
        time.sleep(0.002)
    for thread in threads:
        thread.join()
    assert max(most) <= 10
    assert len(order) == 8


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is told by Linux's /proc")
@pytest.mark.parametrize("mode", ["RGBA", "I;16"])
def test_huge_pictures_on_many_threads_stay_in_memory(tmp_path, mode):
    """13,300 x 13,300: what took four gigabytes for a single one."""
    path = tmp_path / "huge.png"
    Image.new(mode, (13_300, 13_300), 1).save(path, compress_level=1)
    for i in range(3):
        os.link(path, tmp_path / f"{i}.png")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_features import Fake\n"
        "from pathlib import Path; from prolip.features import extract\n"
        "extract(Fake(), sorted(Path(sys.argv[2]).glob('*.png')), workers=4)\n"
        "status = Path('/proc/self/status').read_text().splitlines()\n"
        "print([line.split()[1] for line in status if line.startswith('VmHWM')][0])"
    )
    here = os.path.dirname(__file__)  # noqa: PTH120
    done = subprocess.run(
        [sys.executable, "-c", program, here, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1_200_000  # kilobytes
