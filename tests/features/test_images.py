"""Every kind of image comes out as upright 8-bit RGB; the expected pixels are worked out by hand."""

from __future__ import annotations

import base64
import io
import random
import struct
import time
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from prolip.core.errors import InputError
from prolip.encoders import Preprocess
from prolip.features import ImageError, load_image
from prolip.features.images import to_jpeg


def saved(image: Image.Image, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG byte by byte, for what Pillow reads but does not write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in parts)


def pixels(source) -> list:
    image = load_image(source)
    assert image.mode == "RGB"
    return np.asarray(image).tolist()


# An image 3 wide and 2 high: red, green, blue over white, grey, black.
PICTURE = np.array(
    [[[255, 0, 0], [0, 255, 0], [0, 0, 255]], [[255, 255, 255], [128, 128, 128], [0, 0, 0]]], dtype=np.uint8
)


# --- where an image can come from


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[0, 7]], np.uint8), [[[0] * 3, [7] * 3]]),
        (np.array([[[0], [7]]], np.uint8), [[[0] * 3, [7] * 3]]),
        (np.array([[0, 257 * 9, 65535]], np.uint16), [[[0] * 3, [9] * 3, [255] * 3]]),
        (np.array([[[0.0, 0.2, 1.0]]], np.float32), [[[0, 51, 255]]]),
        (np.array([[[10, 20, 30, 0], [10, 20, 30, 255]]], np.uint8), [[[255] * 3, [10, 20, 30]]]),
    ],
)
def test_arrays(array, expected):
    assert pixels(array) == expected


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((5, 8, 8), np.uint8), r"got \[5, 8, 8\]"),
        (np.zeros((0, 8), np.uint8), r"got \[0, 8\]"),
        (np.zeros((4, 4), np.int64), "got int64"),
        (np.full((4, 4), 255.0), r"0 \.\. 1, got 255 \.\. 255"),
        (np.full((4, 4), np.nan), "got nan"),
        ("no path\0", "embedded null"),
    ],
)
def test_arrays_that_are_no_pictures(array, message):
    with pytest.raises(InputError, match=message):
        load_image(array)


# --- orientation


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [
        (1, lambda a: a),
        (2, lambda a: a[:, ::-1]),
        (3, lambda a: a[::-1, ::-1]),
        (4, lambda a: a[::-1]),
        (5, lambda a: a.transpose(1, 0, 2)),
        (6, lambda a: a.transpose(1, 0, 2)[:, ::-1]),  # the camera's right is up: turn clockwise
        (7, lambda a: a[::-1, ::-1].transpose(1, 0, 2)),
        (8, lambda a: a.transpose(1, 0, 2)[::-1]),
    ],
)
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_exif_orientation(orientation, upright, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    # Blocks of 16 pixels, so that JPEG's coding does not blur one into the next.
    large = PICTURE.repeat(16, axis=0).repeat(16, axis=1)
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    content = saved(Image.fromarray(large), kind, exif=exif, **options)
    for source in (content, Image.open(io.BytesIO(content))):
        picture = np.asarray(load_image(source))
        assert np.abs(picture[8::16, 8::16].astype(int) - upright(PICTURE)).max() <= 3


def test_broken_exif_does_not_spoil_the_pixels():
    data = saved(Image.fromarray(PICTURE), "PNG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff nonsense")
    assert pixels(data) == PICTURE.tolist()


# --- kinds of pixels


@pytest.mark.parametrize("transparency", [1, bytes([255, 0])])
def test_transparent_colours_of_a_palette_are_white(transparency):
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    assert pixels(saved(palette, "PNG", transparency=transparency)) == [[[10, 20, 30], [255] * 3]]


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_alpha_is_laid_on_white(kind):
    values = np.array([[[200, 100, 0, 255], [200, 100, 0, 51], [200, 100, 0, 0]]], np.uint8)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    got = np.array(pixels(saved(Image.fromarray(values), kind, **options)))
    alpha = values[..., 3:] / 255
    assert np.abs(got - (values[..., :3] * alpha + 255 * (1 - alpha))).max() <= 1


SIXTEEN = np.array([[0, 257, 32768, 65535]], np.uint16)  # 0, 1, 128 and 255 in 8 bits


@pytest.mark.parametrize(
    "source",
    [
        saved(Image.fromarray(SIXTEEN), "PNG"),
        saved(Image.fromarray(SIXTEEN), "TIFF"),
        b"P5 4 1 65535\n" + SIXTEEN.astype(">u2").tobytes(),
        Image.frombytes("I;16B", (4, 1), SIXTEEN.astype(">u2").tobytes()),
        Image.fromarray(SIXTEEN.astype(np.int32)),
    ],
    ids=["png", "tiff", "pgm", "big-endian", "int32"],
)
def test_sixteen_bit_grey_is_scaled_not_clipped(source):
    assert np.array(pixels(source))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_float_pictures_span_their_range():
    data = saved(Image.fromarray(np.array([[-1.0, 0.6, 1.0]], np.float32)), "TIFF")
    assert np.array(pixels(data))[0, :, 0].tolist() == [0, 204, 255]


@pytest.mark.parametrize("kind", ["TIFF", "JPEG"])
def test_cmyk(kind):
    # No ink is white, all cyan is without red, half black is grey. A JPEG holds the inks inverted.
    inks = np.array([[[0, 0, 0, 0], [255, 0, 0, 0], [0, 0, 0, 128], [0, 255, 255, 0]]], np.uint8)
    large = inks.repeat(16, axis=0).repeat(16, axis=1)
    data = saved(Image.fromarray(large, "CMYK"), kind, **({"quality": 100} if kind == "JPEG" else {}))
    if kind == "JPEG":
        assert b"Adobe" in data[:64]
    got = np.asarray(load_image(data))[8, 8::16].astype(int)
    assert np.abs(got - [[255, 255, 255], [0, 255, 255], [127, 127, 127], [255, 0, 0]]).max() <= 3


def test_an_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "lime")]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixels(data)[0][0] == [255, 0, 0]


# --- images that are none


@pytest.fixture
def photo(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = tmp_path / "photo.jpg"
    path.write_bytes(saved(Image.fromarray(noise), "JPEG"))
    return path


def test_a_truncated_file_is_named_with_the_reason(photo):
    photo.write_bytes(photo.read_bytes()[:-500])
    with pytest.raises(ImageError) as caught:
        load_image(photo)
    assert caught.value.name == str(photo)
    assert "truncated" in caught.value.reason
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an image"),
        (b"no image at all", "not an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (png(4, 4, 8, 2, b"\0" * 7), "cannot read image"),
        (png(0, 4, 8, 2, b""), "cannot read image"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 64, "cannot read image"),
    ],
)
def test_files_that_are_no_pictures(tmp_path, content, reason):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=reason):
        load_image(path)


def test_a_decompression_bomb_is_not_decoded():
    for side in (15_000, 60_000):
        with pytest.raises(ImageError):
            load_image(png(side, side, 8, 2, b""), "bomb.png")


def test_a_path_that_cannot_be_read(tmp_path):
    with pytest.raises(ImageError):
        load_image(tmp_path / "gone.jpg")
    with pytest.raises(ImageError):
        load_image(tmp_path)


# Red on the left, blue on the right, 32 x 16.
HEIC = base64.b64decode(
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAXxtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAA"
    "AAAAACJpbG9jAAAAAERAAAEAAQAAAAABoAABAAAAAAAAAJ8AAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAA"
    "AA5waXRtAAAAAAABAAAA/GlwcnAAAADcaXBjbwAAAHVodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNw"
    "AAADAJAAAAMAAAMAHroCQGEAAQApQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbqrprm4CGgwIAAAAyAAAADAIRiAAEABkQBwXPB"
    "iQAAABNjb2xybmNseAABAA0ABoAAAAAUaXNwZQAAAAAAAABAAAAAQAAAAChjbGFwAAAAIAAAAAEAAAAQAAAAAf///+AAAAAC"
    "////0AAAAAIAAAAQcGl4aQAAAAADCAgIAAAAGGlwbWEAAAAAAAAAAQABBYECAwWEAAAAp21kYXQAAACbKAGvEyGdzRj4EPdn"
    "/+u8Ff+Vaz/zN7ls//HCp9+3LV/6zPekFHr6K3nCHJ23zwIIWbhSWJFCvRg/pvbnGHpl3jaE8xsXlDicGTpYUO6ouiAi9a8j"
    "5zvoqeqAp7mD3Vji5jGcbRINj6bXd87bk5EgLIwugouAyxmpzrJanNeQSQgcAw1O+t8tQ7DWtFoogvjrIzHx2QaLNaipj2Y="
)


def test_heic():
    picture = np.asarray(load_image(HEIC, upload=True)).astype(int)
    assert np.abs(picture[8, [4, 28]] - [[255, 0, 0], [0, 0, 255]]).max() <= 12


def test_uploads_are_photos_and_graphics():
    image = Image.fromarray(PICTURE)
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP"):
        assert load_image(saved(image, kind), upload=True).size == (3, 2)
    for kind in ("TIFF", "PPM", "JPEG2000"):
        assert load_image(saved(image, kind)).size == (3, 2)
        with pytest.raises(ImageError):
            load_image(saved(image, kind), upload=True)
    for kind in ("ICO", "ICNS"):
        with pytest.raises(ImageError):
            load_image(saved(image.resize((64, 64)), kind))


# --- large images


def smooth(width: int, height: int) -> Image.Image:
    rough = np.random.default_rng(3).integers(0, 256, (height // 25, width // 25, 3), np.uint8)
    return Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("size", [(2400, 1600), (1601, 2401)])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_photo_gives_the_same_view_as_its_pixels(size, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(smooth(*size), "JPEG", exif=exif, quality=95)
    preprocess = Preprocess(224, (0.5,) * 3, (0.5,) * 3)
    photo = load_image(data, near=preprocess.sufficient_side)
    assert min(photo.size) == (800 if size[0] % 2 == 0 else 1601)  # odd sides would move the pixels
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    scale = 224 / min(upright.size)
    plain = upright.resize([int(side * scale) for side in upright.size], Image.Resampling.BICUBIC)
    left, top = round((plain.width - 224) / 2), round((plain.height - 224) / 2)
    expected = np.asarray(plain.crop((left, top, left + 224, top + 224))).astype(int)
    assert np.abs(preprocess.centre(photo) - expected).mean() < 0.5


def test_a_jpeg_of_many_scans_is_given_up(monkeypatch):
    """Each scan covers all pixels: a megabyte of them would take hours."""
    monkeypatch.setattr("prolip.features.images.SECONDS", 0.2)
    data = saved(Image.new("RGB", (2000, 2000)), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    scan = data[data.rindex(b"\xff\xc4", 0, last) : -2]
    with pytest.raises(ImageError):
        load_image(data[:-2] + scan * 5000 + data[-2:])


def test_damaged_images_are_read_or_refused():
    """Bytes changed, cut out and put in, most of them in the header: no other error, and no long work."""
    rng, picture = random.Random(0), Image.fromarray(PICTURE.repeat(30, axis=0).repeat(40, axis=1))
    kinds = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "PPM")
    originals, refused, began = [HEIC, *(saved(picture, kind) for kind in kinds)], 0, time.thread_time()
    for number in range(650):
        data = bytearray(originals[number % len(originals)])
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(min(len(data), rng.choice([64, 400, 10**6])))
            data[at : at + rng.choice([0, 1, 4, 30])] = rng.choice([b"", rng.randbytes(4), b"\xff" * 4])
        try:
            load_image(bytes(data), near=100)
        except ImageError:
            refused += 1
    assert refused > 200
    assert time.thread_time() - began < 30


def test_a_small_copy_has_no_metadata():
    exif, stream = Image.Exif(), io.BytesIO()
    exif[0x010F] = "secret"
    options = {"exif": exif, "comment": b"secret", "xmp": b"secret"}
    Image.new("RGB", (64, 64)).save(stream, "JPEG", **options)
    assert stream.getvalue().count(b"secret") >= 2
    assert b"secret" not in to_jpeg(load_image(stream.getvalue()), 32, 90)
