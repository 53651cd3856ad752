"""Every way in which images come: the same images, the same labels."""

import csv
import gc
import gzip
import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api.fit import DuplicateWarning
from prolip.api.inputs import as_images, read_labelled
from prolip.core.errors import InputError, ProlipError, UsageError
from prolip.data import archives, list_images, read_images
from prolip.features import load_image
from prolip.features.images import ImageError
from prolip.io.environment import MissingPackageError
from prolip.io.reading import ReadError
from prolip.io.writing import write_csv as write_cells


def png(image):
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def pixels(images):
    return [np.asarray(load_image(image)).tolist() for image in images]


def labels(images):
    return [images.classes[label] for label in images.labels]


@pytest.fixture
def folder(tmp_path):
    """Two images of each colour, and one of the greens deeper in its folder."""
    for k, (name, colour) in enumerate(COLOURS.items()):
        for i in range(2):
            place = tmp_path / "photos" / name / ("deep" if name == "green" and i else "") / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            blotch(colour, 10 * k + i, size=8).save(place)
    return tmp_path / "photos"


@pytest.fixture
def expected(folder):
    """Pixels and labels as a folder of classes has them."""
    images = read_images(folder)
    assert labels(images) == ["blue", "blue", "green", "green", "red", "red"]
    return pixels(images.images), labels(images)


def rows_of(folder):
    return [
        (str(path.relative_to(folder.parent)), path.relative_to(folder).parts[0])
        for path in sorted(folder.rglob("*.png"))
    ]


def zipped(folder, place, inside=""):
    with zipfile.ZipFile(place, "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, f"{inside}{path.relative_to(folder).as_posix()}")
    return place


def tarred(folder, place, mode="w"):
    with tarfile.open(place, mode) as archive:
        archive.add(folder, folder.name)
    return place


def write_csv(folder, place, separator=","):
    with place.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator).writerows([("file_name", "label"), *rows_of(folder)])
    return place


def write_jsonl(folder, place):
    lines = [json.dumps({"file_name": name, "label": label}) for name, label in rows_of(folder)]
    place.write_text("\n".join(lines), encoding="utf-8")
    return place


KINDS = {
    "csv": lambda folder, at: write_csv(folder, at / "list.csv"),
    "semicolons": lambda folder, at: write_csv(folder, at / "list.csv", ";"),
    "tsv": lambda folder, at: write_csv(folder, at / "list.TSV", "\t"),
    "jsonl": lambda folder, at: write_jsonl(folder, at / "list.jsonl"),
    "zip": lambda folder, at: zipped(folder, at / "p.zip"),
    "tar": lambda folder, at: tarred(folder, at / "p.tar"),
    "tar.gz": lambda folder, at: tarred(folder, at / "p.tar.gz", "w:gz"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_pictures_whatever_they_lie_in(folder, expected, tmp_path, offline, kind):
    source = KINDS[kind](folder, tmp_path)
    images = read_images(source)
    assert (pixels(images.images), labels(images)) == expected
    listed = list_images(source)
    assert pixels(listed) == expected[0]
    assert len({str(image) for image in listed}) == len(listed)
    assert pixels(as_images(str(source))) == expected[0]
    labelled = read_labelled(source, None, split="train")
    assert (pixels(labelled.images), labelled.label_names) == expected


def test_pictures_in_memory(folder, expected):
    paths = [folder.parent / name for name, _ in rows_of(folder)]
    arrays = [np.asarray(load_image(path)) for path in paths]
    for several in (
        paths,
        [str(path) for path in paths],
        [path.read_bytes() for path in paths],
        [io.BytesIO(path.read_bytes()) for path in paths],
        [Image.open(path) for path in paths],
        arrays,
        np.stack(arrays),
        [array.transpose(2, 0, 1) for array in arrays],
        np.stack(arrays).transpose(0, 3, 1, 2),
        read_images(folder),
        (path for path in paths),
    ):
        assert pixels(as_images(several)) == expected[0]
    stream = io.BytesIO(paths[0].read_bytes())
    for single in (paths[0], paths[0].read_bytes(), stream, stream, Image.open(paths[0]), arrays[0]):
        assert pixels(as_images(single)) == expected[0][:1]
    with paths[0].open("rb") as file:
        assert pixels(as_images(file)) == expected[0][:1]


def test_which_axis_has_the_channels():
    grey, colour = np.arange(6 * 8, dtype=np.uint8).reshape(6, 8), np.zeros((6, 8, 3), np.uint8)
    for array in (grey, grey[:, :, None], grey[None]):
        assert np.array_equal(np.asarray(load_image(array))[:, :, 0], grey)
    assert load_image(colour.transpose(2, 0, 1)).size == (8, 6)
    assert load_image(np.zeros((3, 8, 3), np.uint8)).size == (8, 3)  # both ends would do: last, of NumPy
    assert [load_image(image).size for image in as_images(np.zeros((5, 6, 8), np.uint8))] == [(8, 6)] * 5
    with pytest.raises(UsageError):
        as_images(np.zeros((3, 6, 8), np.uint8))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["https://example.org/cat.jpg"], "is a URL"),
        (7, "not int"),
    ],
)
def test_what_is_no_image(value, message):
    with pytest.raises(UsageError, match=message):
        as_images(value)


def test_labels_that_come_along_are_names(folder, offline):
    """A model whose classes are numbers is asked with text, and understands."""
    images = read_images(folder)
    table = folder / "metadata.csv"
    rows = [
        f"{path.relative_to(folder)},{label}"
        for path, label in zip(images.images, images.labels, strict=True)
    ]
    table.write_text("file_name,label\n" + "\n".join(rows))
    assert read_images(folder).classes == ["0", "1", "2"]
    labelled = read_labelled(folder, None, split="test", classes=[2, 1, 0])
    assert labelled.classes == [2, 1, 0]
    assert labelled.label_names == images.labels
    with pytest.raises(UsageError):
        read_labelled(images.images, None, split="train")


# --- tables


def test_a_table_may_name_files_anywhere(folder, expected, tmp_path):
    inner = tmp_path / "lists"
    inner.mkdir()
    rows = [(f"../{name}", label) for name, label in rows_of(folder)]
    rows[0] = (str(tmp_path / rows_of(folder)[0][0]), rows[0][1])
    rows[1] = (rows[1][0].replace("/", "\\"), rows[1][1])  # as Windows writes it
    (inner / "a.csv").write_text("path,class\n" + "\n".join(map(",".join, rows)))
    images = read_images(inner / "a.csv")
    assert (pixels(images.images), labels(images)) == expected
    assert pixels(list_images(inner / "a.csv")) == expected[0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252"])
def test_tables_of_spreadsheets(folder, tmp_path, encoding):
    """German headers, an empty first line, and an empty row at the end."""
    rows = [f"{name};{label.replace('red', 'größe')}" for name, label in rows_of(folder)]
    text = "\r\n".join(["", "Datei;Größe", *rows, ";", ""])
    (tmp_path / "list.csv").write_bytes(text.encode(encoding))
    with pytest.raises(InputError, match="no column of images"):
        read_images(tmp_path / "list.csv")
    images = read_images(tmp_path / "list.csv", image_column="datei", label_column="größe")
    assert images.counts() == {"blue": 2, "green": 2, "größe": 2}


def test_columns_and_the_folder_of_the_files_can_be_named(folder, expected, tmp_path):
    (tmp_path / "lists").mkdir()
    listed = tmp_path / "lists" / "a.csv"
    rows = [f"{Path(name).relative_to('photos').as_posix()},x,{label}" for name, label in rows_of(folder)]
    listed.write_text("Id,label,Breed\n" + "\n".join(rows))
    columns = {"image_column": "id", "images_dir": folder}
    images = read_images(listed, **columns, label_column="breed")
    assert (pixels(images.images), labels(images)) == expected
    assert pixels(list_images(listed, **columns)) == expected[0]
    with pytest.raises(InputError, match="no column of images"):
        read_images(listed, images_dir=folder)
    with pytest.raises(InputError, match=r"no column of labels \(race\)"):
        read_images(listed, **columns, label_column="race")
    with pytest.raises(InputError):
        read_images(listed, image_column="id", label_column="breed")
    with pytest.raises(InputError):
        read_images(listed, image_column="id", images_dir=tmp_path / "nowhere")


def test_names_come_back_from_a_csv_as_they_were(tmp_path):
    names = [
        "a\nb.jpg",
        'quo"ted, and more.jpg',
        " space .jpg",
        "\ttab.jpg",
        "=cmd().jpg",
        "'a.jpg",
    ]
    for name in names:
        (tmp_path / name).touch()
    rows = [[name, f"line\n{k}"] for k, name in enumerate(names)]
    write_cells(tmp_path / "list.csv", [["image", "class"], *rows])
    assert "\n=" not in (tmp_path / "list.csv").read_text()  # which a spreadsheet would run
    assert [path.name for path in list_images(tmp_path / "list.csv")] == names
    assert read_images(tmp_path / "list.csv").classes == [f"line {k}" for k in range(len(names))]


@pytest.mark.parametrize("cell", ['{"path": null}', "[1]", "true"])
def test_cells_that_are_no_image(tmp_path, cell):
    (tmp_path / "list.jsonl").write_text(f'{{"image": {cell}, "label": "a"}}')
    with pytest.raises(InputError, match=":1: the image is"):
        read_images(tmp_path / "list.jsonl")


# --- archives


def test_splits_and_tables_in_an_archive(folder, expected, tmp_path):
    zipped(folder, tmp_path / "parts.zip", "photos/train/")
    with zipfile.ZipFile(tmp_path / "parts.zip", "a") as archive:
        archive.writestr("photos/test/red/9.png", png(blotch((1, 2, 3), 9, size=8)))
        archive.writestr("photos/test/green/9.png", b"not an image")
        archive.writestr("__MACOSX/photos/train/red/._0.png", b"clutter")
        archive.writestr("photos/../../../../outside.txt", b"stays inside")
    images = read_images(tmp_path / "parts.zip")
    assert (pixels(images.images), labels(images), images.split) == (*expected, "train")
    tested = read_images(tmp_path / "parts.zip", "test")
    assert labels(tested) == ["green", "red"]
    assert not list(tmp_path.rglob("outside.txt"))
    with pytest.raises(ImageError):
        load_image(tested.images[0])

    write_csv(folder, tmp_path / "metadata.csv")
    with zipfile.ZipFile(zipped(folder, tmp_path / "table.zip", "photos/"), "a") as archive:
        archive.write(tmp_path / "metadata.csv", "metadata.csv")
    images = read_images(tmp_path / "table.zip")
    assert (pixels(images.images), labels(images)) == expected
    with zipfile.ZipFile(tmp_path / "lost.zip", "w") as archive:
        archive.writestr("metadata.csv", f"file_name,label\n{folder / 'red' / '0.png'},a\n")
    lost = read_images(tmp_path / "lost.zip", min_classes=1)
    with pytest.raises(ImageError):
        load_image(lost.images[0])
    with zipfile.ZipFile(tmp_path / "bare.zip", "w") as archive:
        archive.writestr("metadata.csv", "file_name,breed\n1.jpg,a\n")
    with pytest.raises(InputError, match=r"bare\.zip"):
        read_images(tmp_path / "bare.zip")


def test_links_in_a_tar_are_not_followed(folder, expected, tmp_path):
    with tarfile.open(tarred(folder, tmp_path / "p.tar"), "a") as archive:
        for kind, name in ((tarfile.SYMTYPE, "photos/red/9.png"), (tarfile.LNKTYPE, "photos/red/8.png")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, "/etc/passwd"
            archive.addfile(link)
    assert pixels(read_images(tmp_path / "p.tar").images) == expected[0]


def test_an_archive_has_a_limit_of_bytes(folder, tmp_path, monkeypatch):
    places = [zipped(folder, tmp_path / "p.zip"), tarred(folder, tmp_path / "p.tgz", "w:gz")]
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("a/1.png")
        member.size = 10 << 20
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    assert len(list_images(tmp_path / "bomb.tar.gz")) == 1
    monkeypatch.setattr(archives, "UNPACKED", 1000)
    monkeypatch.setattr(archives, "RATIO", 0)
    for place in (*places, tmp_path / "bomb.tar.gz"):
        with pytest.raises(ReadError):
            list_images(place)


def test_an_archive_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    images = read_images(zipped(folder, tmp_path / "p.zip"))
    last = images.images[-1]
    del images
    assert np.asarray(load_image(last)).shape == (8, 8, 3)
    assert str(last).startswith(str(tmp_path / "p.zip"))
    del last
    (tmp_path / "broken.zip").write_bytes((tmp_path / "p.zip").read_bytes()[:-30])
    with pytest.raises(ReadError):
        read_images(tmp_path / "broken.zip")
    gc.collect()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_header_that_claims_gigabytes_is_not_read(tmp_path):
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 8 << 30
    with gzip.open(tmp_path / "p.tar.gz", "wb") as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT) + b"\0" * 100_000)
    with pytest.raises(InputError, match="claims"):
        read_images(tmp_path / "p.tar.gz")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_damaged_archives_are_an_error_of_ours(folder, tmp_path, kind):
    source = KINDS[kind](folder, tmp_path)
    whole, rng = source.read_bytes(), np.random.default_rng(0)
    for content in (b"", b"x", whole[: len(whole) // 2], whole[:-20]):
        source.write_bytes(content)
        try_all(source)
    for _ in range(60):
        spoiled = bytearray(whole)
        for place in rng.integers(0, len(whole), 8):
            spoiled[place] = rng.integers(256)
        source.write_bytes(spoiled)
        try_all(source)


def try_all(source):
    """What can be read is read; what cannot is a ProlipError."""
    try:
        listed = list_images(source)
    except ProlipError:
        return
    for image in listed:
        try:
            load_image(image)
        except ProlipError:
            continue


def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch):
    import importlib

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingPackageError) as raised:
        read_images(tmp_path / "a.parquet")
    assert (raised.value.package, raised.value.extra) == ("pyarrow", "tables")
    for name in ("state.json", "dataset_info.json"):
        (tmp_path / name).write_text("{}")
    for read in (read_images, list_images):
        with pytest.raises(MissingPackageError) as raised:
            read(tmp_path)
        assert (raised.value.package, raised.value.extra) == ("datasets", "datasets")


# --- fit


def test_pairs_of_images_and_labels(folder, expected, offline):
    paths = [folder.parent / name for name, _ in rows_of(folder)]
    for pairs in (zip(paths, expected[1], strict=True), list(zip(paths, expected[1], strict=True))):
        labelled = read_labelled(pairs, split="train")
        assert (pixels(labelled.images), labelled.label_names) == expected


@pytest.mark.parametrize("labels", [["a", "b", None], [0.0, 1.0, float("nan")], [None] * 3, ["a", "b", 1]])
def test_labels_that_are_missing_or_mixed(offline, labels):
    with pytest.raises(InputError):
        read_labelled([np.zeros((8, 8, 3), np.uint8)] * 3, labels, split="train")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("x,y", ["no column of images", "labels", "image_column", "label_column"]),
        ("image,label,label", ["two columns"]),
    ],
)
def test_columns_that_are_missing_or_twice_are_all_named(tmp_path, header, said):
    (tmp_path / "list.csv").write_text(f"{header}\na,b,c\n".replace(",c", ",c" * (header.count(",") - 1)))
    with pytest.raises(InputError) as error:
        read_images(tmp_path / "list.csv")
    assert all(part in str(error.value) for part in said)


def test_columns_are_named_in_fit(folder, offline):
    write_csv(folder, folder.parent / "list.csv")
    renamed = (folder.parent / "list.csv").read_text().replace("file_name,label", "foto,art", 1)
    (folder.parent / "list.csv").write_text(renamed)
    columns = {"image_column": "foto", "label_column": "art"}
    clf = FewShotClassifier(offline, store=False)
    assert clf.fit(folder.parent / "list.csv", **columns).classes_.tolist() == ["blue", "green", "red"]


def test_a_photo_in_two_classes_is_named_with_both_labels(folder, offline, tmp_path):
    (folder / "blue" / "wrong.png").write_bytes((folder / "red" / "0.png").read_bytes())
    clf = FewShotClassifier(offline, store=False)
    with pytest.warns(DuplicateWarning) as caught:
        clf.fit(zipped(folder, tmp_path / "p.zip"))
    message = " ".join(str(warning.message) for warning in caught)
    for name, label in (("blue/wrong.png", "blue"), ("red/0.png", "red")):
        assert f"{tmp_path / 'p.zip'}/{name} ({label})" in message
