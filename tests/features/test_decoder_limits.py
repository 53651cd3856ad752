"""Images made to take more memory or time than their files suggest are refused before they are decoded."""

from __future__ import annotations

import io
import struct
import time
import zipfile
import zlib
from threading import Thread

import numpy as np
import pytest
from PIL import Image

from prolip.data import list_images
from prolip.features import FeatureStore, ImageError, extract, load_image
from prolip.features import decoder_limits as limits
from prolip.features.decoder_limits import LimitExceeded
from prolip.features.images import ImageContent
from test_features import Fake, noise

UPRIGHT = Image.Exif()
UPRIGHT[0x0112] = 1


def saved(image: Image.Image, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def png(width: int, height: int) -> bytes:
    """A small PNG that claims a size; what follows the header is never reached."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def ico(picture: bytes) -> bytes:
    """An icon that says 16 x 16, whatever it holds."""
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(picture), 22)
    return struct.pack("<HHH", 0, 1, 1) + entry + picture


def icns(picture: bytes) -> bytes:
    block = b"ic07" + struct.pack(">I", 8 + len(picture)) + picture
    return b"icns" + struct.pack(">I", 8 + len(block)) + block


def jpeg_of_many_scans(scans: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    data = saved(noise(1, (64, 64)), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    before = data.rindex(b"\xff\xc4", 0, last)
    return data[:-2] + data[before:-2] * scans + b"\xff\xd9"


def refused(data) -> LimitExceeded:
    """Why an image is refused: not because of memory, and not because it is damaged."""
    with pytest.raises(ImageError) as caught, ImageContent.open(data, "a").pixels():
        pass
    assert isinstance(caught.value.__cause__, LimitExceeded), caught.value
    return caught.value.__cause__


@pytest.mark.parametrize("wrap", [ico, icns])
def test_an_icon_around_a_large_picture_is_refused_before_it_is_decoded(wrap, monkeypatch):
    load_image(saved(noise(1, (32, 32)), "ICO"))  # Pillow decodes something as it imports its formats
    decoded = []
    load = Image.Image.load
    monkeypatch.setattr(Image.Image, "load", lambda image: decoded.append(image.size) or load(image))
    refused(wrap(png(13_300, 13_300)))
    assert decoded == []


def test_an_icon_around_a_large_bitmap_is_refused():
    refused(ico(struct.pack("<IiiHHIIiiII", 40, 9000, 18000, 1, 32, 0, 0, 0, 0, 0, 0)))


@pytest.mark.parametrize("kind", ["ICO", "ICNS"])
def test_icons_are_read(kind):
    picture = noise(1, (64, 64)).convert("RGBA").resize((128, 128))
    assert load_image(saved(picture, kind)).size[0] >= 64


@pytest.mark.parametrize("as_file", [False, True])
def test_a_jpeg_of_many_scans_is_refused_by_counting_them(as_file, tmp_path, monkeypatch):
    data = jpeg_of_many_scans(limits.SCANS)
    if as_file:
        monkeypatch.setattr("prolip.features.images._AT_ONCE", 100)
        monkeypatch.setattr(limits, "_FIRST", 2000)
        (tmp_path / "a.jpg").write_bytes(data)
        data = tmp_path / "a.jpg"
    refused(data)


def test_a_jpeg_of_many_segments_is_refused():
    data = saved(noise(1, (16, 16)), "JPEG")
    refused(data[:2] + b"\xff\xfe\0\4ab" * (limits.SEGMENTS + 1) + data[2:])


def test_scans_are_not_hidden_by_an_end_inside_a_comment():
    data = jpeg_of_many_scans(limits.SCANS)
    place = data.index(b"\xff\xda", data.index(b"\xff\xda") + 2)
    place = data.rindex(b"\xff\xc4", 0, place)
    refused(data[:place] + b"\xff\xfe\0\x06\xff\xd9\0\0" + data[place:])


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"exif": UPRIGHT}])
def test_ordinary_jpegs_and_what_follows_them_are_read(options):
    data = saved(noise(1, (64, 48)), "JPEG", **options) + b"\xff\xda" * 1000  # a video after the image, say
    assert load_image(data).size == (64, 48)


def test_an_exif_block_whose_tags_all_point_to_all_of_it_is_refused():
    count = 4000
    tags = b"".join(struct.pack(">HHII", 1000 + k, 7, 12 * count, 8) for k in range(count))
    exif = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, count) + tags
    refused(saved(noise(1, (16, 16)), "JPEG", exif=exif))
    # Only the orientation is looked up in a PNG.
    assert load_image(saved(noise(1, (16, 16)), "PNG", exif=exif)).size == (16, 16)


def test_a_tiff_of_more_strips_than_a_picture_can_have_is_refused():
    count = limits.STRIPS + 1
    tags = [(256, 4, 1, 8), (257, 4, 1, 8), (273, 4, count, 8), (279, 4, count, 8)]
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    refused(b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + b"\0" * 4)


def test_a_picture_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr("prolip.features.images.SECONDS", 0.0)
    refused(b"qoif" + struct.pack(">IIBB", 64, 64, 3, 0) + b"\xfd" * 100)


def test_a_huge_file_is_refused_by_its_size_and_its_header(tmp_path, monkeypatch):
    """Sparse files: they take no space, and would take minutes to read."""
    for size in (20 << 30, 900 << 20):
        path = tmp_path / f"{size}.jpg"
        with path.open("wb") as file:
            file.truncate(size)
        began = time.perf_counter()
        with pytest.raises(ImageError):
            ImageContent.open(path, "a")
        assert time.perf_counter() - began < 0.5


def test_a_file_that_is_read_as_a_whole_by_its_decoder_has_a_limit(tmp_path):
    path = tmp_path / "a.webp"
    with path.open("wb") as file:
        file.write(saved(noise(1, (16, 16)), "WEBP"))
        file.truncate(300 << 20)
    refused(path)


def test_large_members_of_an_archive_are_in_memory_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.features.images._AT_ONCE", 100)
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for k in range(4):
            archive.writestr(f"{k}.png", saved(noise(k, (15, 14)), "PNG"))
    images = list_images(path)
    assert all(image.size > 100 for image in images)
    found = extract(Fake(), images, store=FeatureStore(tmp_path / "store"), workers=4)
    for k, row in enumerate(found.features[0]):
        np.testing.assert_allclose(row, Fake().by_hand(noise(k, (15, 14))), rtol=1e-5, atol=1e-4)
    threads = [Thread(target=load_image, args=[image]) for image in images]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
