"""Every reader of this package, with whole files of its kind to start from: see `fuzzing`."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import importlib.util
import io
import json
import random
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, features

from fuzzing import NUMBERS, Tally, attempt, damage, damage_jpeg, damage_png, distort, twist
from pictures import COLOURS, blotch
from prolip.api import FewShotClassifier
from prolip.api import save as keep
from prolip.api.groups import read_groups
from prolip.api.inputs import as_images
from prolip.api.prediction_file import PredictionFile
from prolip.core import ProlipError
from prolip.data import read_images
from prolip.data.descriptions import as_descriptions
from prolip.export.card import model_card
from prolip.features import load_image
from prolip.io.reading import parse_tensors, read_bytes, read_json
from prolip.io.writing import as_safetensors, write_tensors

METHODS = ("prolip", "rla", "zero_shot", "linear_probe", "tip_adapter", "gda", "task_res", "prolip+rla")
Read = Callable[[Path], Any]


def targets() -> list[str]:
    """The names of all targets that can be read here."""
    names = [name for name, own in vars(Targets).items() if callable(own) and not name.startswith("_")]
    return [name for name in names if name != "parquet" or importlib.util.find_spec("pyarrow")]


def fuzz_bytes(
    name: str, file: Path, read: Read, count: int, generator: random.Random, checked: bool = False
) -> Tally:
    """Damage a file as bytes."""
    tally, content = Tally(name), file.read_bytes()
    expected = read(file) if checked else None
    for _ in range(count):
        file.write_bytes(damage(content, generator))
        attempt(tally, lambda: read(file), expected)
    file.write_bytes(content)
    return tally


def fuzz_made(
    name: str, file: Path, read: Read, count: int, generator: random.Random, make: Callable[[], bytes]
) -> Tally:
    """Read what `make` makes, each time anew."""
    tally = Tally(name)
    for _ in range(count):
        file.write_bytes(make())
        attempt(tally, lambda: read(file))
    return tally


@functools.cache
def pictures() -> list[tuple[str, bytes]]:
    """Small files of every format that can be written here, in several kinds of each."""
    plain = blotch(COLOURS["red"], 0, size=40)
    small = plain.resize((16, 16))
    exif = Image.Exif()
    exif[0x0112] = 6
    sixteen = Image.fromarray(np.arange(1600, dtype=np.uint16).reshape(40, 40) * 40)
    frames = {
        "save_all": True,
        "append_images": [small.resize((40, 40))] * 3,
    }  # saving leaves marks on images
    kinds: list[tuple[str, Image.Image, dict[str, Any]]] = [
        ("JPEG", plain, {}),
        ("JPEG", plain, {"progressive": True, "exif": exif}),
        ("JPEG", plain.convert("CMYK"), {}),
        ("JPEG", plain.convert("L"), {"progressive": True}),
        ("MPO", plain, frames),
        ("PNG", plain, {"exif": exif}),
        ("PNG", plain.convert("P"), {}),
        ("PNG", sixteen, {}),
        ("PNG", plain.convert("RGBA"), frames),
        ("WEBP", plain, {"exif": exif}),
        ("WEBP", plain, {"lossless": True}),
        ("WEBP", plain.convert("RGBA"), frames),
        ("GIF", plain.convert("P"), frames),
        ("BMP", plain, {}),
        ("BMP", plain.convert("P"), {}),
        ("TIFF", plain, {"exif": exif}),
        ("TIFF", plain, {"compression": "tiff_lzw"}),
        ("TIFF", plain, {"compression": "tiff_adobe_deflate"}),
        ("TIFF", plain, {"compression": "jpeg"}),
        ("TIFF", plain, frames),
        ("TIFF", plain.convert("1"), {"compression": "group4"}),
        ("TIFF", sixteen, {}),
        ("TIFF", plain, {"big_tiff": True}),
        ("AVIF", plain, {}),
        ("JPEG2000", plain, {}),
        ("JPEG2000", plain, {"no_jp2": True}),
        ("PPM", plain, {}),
        ("PPM", plain.convert("1"), {}),
        ("TGA", plain, {}),
        ("TGA", plain, {"compression": "tga_rle"}),
        ("ICO", plain, {"sizes": [(16, 16), (32, 32)]}),
        ("ICO", plain, {"sizes": [(16, 16)], "bitmap_format": "bmp"}),
        ("ICNS", plain.resize((128, 128)), {}),
        ("PCX", plain, {}),
        ("SGI", plain, {}),
        ("DDS", plain.convert("RGBA"), {}),
        ("QOI", plain, {}),
    ]
    found = []
    for kind, image, options in kinds:
        stream = io.BytesIO()
        with suppress(OSError, KeyError, ValueError):  # not in this Pillow
            own = {**options, "append_images": [each.copy() for each in options.get("append_images", ())]}
            image.copy().save(stream, kind, **own)
            found.append((kind, stream.getvalue()))
    found.append(("PPM", b"P3 4 4 300 " + b"10 20 30 " * 16))
    if features.check("jpg_2000"):
        header = b"ic08" + struct.pack(">I", 8 + len(found[-2][1]))
        found.append(("ICNS", b"icns" + struct.pack(">I", 16 + len(found[-2][1])) + header + found[-2][1]))
    return found


def zip_of(members: dict[str, bytes], generator: random.Random) -> bytes:
    """A .zip; now and then with methods, sizes and checksums that lie."""
    stream = io.BytesIO()
    methods = (0, 0, 8, 8, 8, 12, 14) if generator.random() < 0.2 else (0, 8)
    with zipfile.ZipFile(stream, "w", generator.choice(methods)) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in members.items():
            archive.writestr(name, content)
        if generator.random() < 0.05:
            archive.writestr(name, content)
    data = bytearray(stream.getvalue())
    if generator.random() < 0.5:
        for signature, fields in ((b"PK\3\4", (8, 14, 18, 22)), (b"PK\1\2", (10, 16, 20, 24))):
            if generator.random() < 0.8 and (place := data.find(signature)) >= 0:
                place += generator.choice(fields)
                data[place : place + 4] = struct.pack("<I", generator.choice(NUMBERS) % 2**32)
    return bytes(data)


def tar_of(members: dict[str, bytes], generator: random.Random, compress: bool) -> bytes:
    """A .tar, with a number in the header of one member changed and its checksum right."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    data = bytearray(stream.getvalue())
    if generator.random() < 0.5:
        header = data[:512]
        place, width = generator.choice(((124, 12), (100, 8), (156, 1), (257, 8), (345, 155)))
        header[place : place + width] = generator.choice(
            (b"7" * width, b"\0" * width, b"\xff" * width, b"-1".ljust(width, b" ")[:width], b"g" * width)
        )
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        data[:512] = header
    else:
        data = bytearray(damage(bytes(data), generator))
    return gzip.compress(bytes(data), mtime=0) if compress else bytes(data)


class Targets:
    """Whole files of every kind, and what reads them; each method is one target."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        self.y = np.repeat(np.arange(3), 4)
        self.text = np.eye(3, 8, dtype=np.float32)
        self.x = (self.text[self.y] + 0.3 * rng.standard_normal((12, 8))).astype(np.float32)
        self.names = ["red", "green", "blue"]
        self._models: list[FewShotClassifier] = []

    @property
    def models(self) -> list[FewShotClassifier]:
        """A fitted model of each kind."""
        if not self._models:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._models = [
                    FewShotClassifier("arrays", method, None).fit(self.x, self.y, text=self.text)
                    for method in METHODS
                ]
        return self._models

    # Pictures

    def pictures_bytes(self, count: int, generator: random.Random) -> Tally:
        """Pictures as files, as bytes and as open files, small and large."""
        whole, path = pictures(), self.folder / "picture.bin"

        def read(file: Path) -> None:
            match generator.randrange(3):
                case 0:
                    load_image(file, near=generator.choice((None, 16)))
                case 1:
                    load_image(file.read_bytes())
                case 2:
                    with file.open("rb") as stream:
                        load_image(as_images([stream])[0])

        return fuzz_made(
            "pictures", path, read, count, generator, lambda: damage(generator.choice(whole)[1], generator)
        )

    def pictures_crafted(self, count: int, generator: random.Random) -> Tally:
        """PNG and JPEG whose parts are whole and do not belong together; and PNGs inside icons."""
        whole = pictures()
        png, jpeg = ([data for kind, data in whole if kind == name] for name in ("PNG", "JPEG"))

        def make() -> bytes:
            if generator.random() < 0.4:
                return damage_jpeg(generator.choice(jpeg), generator)
            made = damage_png(generator.choice(png), generator)
            match generator.randrange(4):
                case 0:
                    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(made), 22)
                    return struct.pack("<HHH", 0, 1, 1) + entry + made
                case 1:
                    block = b"ic07" + struct.pack(">I", 8 + len(made)) + made
                    return b"icns" + struct.pack(">I", 8 + len(block)) + block
            return made

        path = self.folder / "crafted.bin"
        return fuzz_made("pictures, crafted", path, load_image, count, generator, make)

    def pictures_sparse(self, count: int, generator: random.Random) -> Tally:
        """Pictures followed by up to 100 GB of nothing, with a damaged start."""
        whole, path = pictures(), self.folder / "sparse.jpg"
        tally = Tally("pictures, huge and sparse")
        for _ in range(count):
            data = generator.choice(whole)[1]
            path.write_bytes(data if generator.random() < 0.3 else damage(data, generator))
            with path.open("r+b") as file:
                file.truncate(generator.choice((10**7, 10**8, 10**9, 10**11)))
            attempt(tally, lambda: load_image(path))
        path.unlink()
        return tally

    # Archives, tables and datasets

    def _open_all(self, path: Path) -> None:
        for image in read_images(path).images[:10]:
            with suppress(ProlipError):
                load_image(image)

    def _members(self, generator: random.Random) -> dict[str, bytes]:
        content = [data for _, data in pictures()[:12]]
        members = {f"{name}/{k}.png": generator.choice(content) for name in self.names for k in range(2)}
        if generator.random() < 0.2:
            odd = (
                "../x.png",
                "/a/b.png",
                "a\0.png",
                "caf\u00e9/1.png",
                "cafe\u0301/1.png",
                "red/metadata.csv",
                "x/" * 500,
            )
            members[generator.choice(odd) + ".png"] = content[0]
        if generator.random() < 0.2:
            members["metadata.csv"] = b"file_name,label\nred/0.png,red\nblue/0.png,blue\n"
        if generator.random() < 0.1:
            members["red/bomb.png"] = bytes(10**7)
        return members

    def archives_zip(self, count: int, generator: random.Random) -> Tally:
        """A .zip of folders."""

        def make() -> bytes:
            data = zip_of(self._members(generator), generator)
            return damage(data, generator) if generator.random() < 0.5 else data

        return fuzz_made(".zip", self.folder / "a.zip", self._open_all, count, generator, make)

    def archives_tar(self, count: int, generator: random.Random) -> Tally:
        """A .tar of folders, and a .tar.gz."""
        path = self.folder / "a.tar"
        make = lambda: tar_of(self._members(generator), generator, generator.random() < 0.5)  # noqa: E731
        return fuzz_made(".tar and .tar.gz", path, self._open_all, count, generator, make)

    def tables(self, count: int, generator: random.Random) -> Tally:
        """Tables of files and of images in base64."""
        tally = Tally(".csv, .tsv and .jsonl")
        picture = pictures()[0][1]
        for k in range(3):
            (self.folder / f"{k}.jpg").write_bytes(picture)
        content = base64.b64encode(picture).decode()
        rows = [("0.jpg", "red", "train"), ("1.jpg", "blue", "test"), ("2.jpg", "caf\u00e9", "train")]
        files = {
            "a.csv": "file_name,label,split\n" + "".join(",".join(row) + "\n" for row in rows),
            "b.csv": f"bytes,label\n{content},red\n{content},blue\n",
            "c.tsv": "file\tclass\n0.jpg\tred\n1.jpg\tblue\n",
            "d.jsonl": "".join(json.dumps({"image": n, "label": c, "split": s}) + "\n" for n, c, s in rows),
            "e.jsonl": json.dumps({"image": {"bytes": None, "path": "0.jpg"}, "label": 3}) + "\n",
        }
        for _ in range(count):
            name = generator.choice(list(files))
            (self.folder / name).write_bytes(damage(files[name].encode(), generator))
            attempt(tally, lambda name=name: self._open_all(self.folder / name))
        return tally

    def parquet(self, count: int, generator: random.Random) -> Tally:
        """Parquet tables of images, labels as names and as numbers."""
        import pyarrow as arrow
        import pyarrow.parquet as written

        content = [data for _, data in pictures()[:6]]
        wholes = []
        for columns, options in (
            ({"image": content, "label": list("aabbcc")}, {"compression": "zstd"}),
            (
                {"image": [{"bytes": c, "path": None} for c in content], "label": list("aabbcc")},
                {"row_group_size": 2},
            ),
            ({"bytes": [bytes(10**6)] * 6, "label": [0, 0, 1, 1, 2, 2]}, {"compression": "gzip"}),
        ):
            stream = io.BytesIO()
            written.write_table(arrow.table(columns), stream, **options)
            wholes.append(stream.getvalue())
        make = lambda: damage(generator.choice(wholes), generator)  # noqa: E731
        return fuzz_made(".parquet", self.folder / "a.parquet", self._open_all, count, generator, make)

    # Arrays, and what belongs to them

    def arrays_npy(self, count: int, generator: random.Random) -> Tally:
        """Embeddings as an array."""
        from prolip.encoders.precomputed import read_embeddings

        np.save(self.folder / "x.npy", self.x)
        return fuzz_bytes(".npy", self.folder / "x.npy", read_embeddings, count, generator)

    def arrays_npz(self, count: int, generator: random.Random) -> Tally:
        """Embeddings with all that belongs to them, in archives and with headers that lie."""

        def header(array: np.ndarray) -> bytes:
            stream = io.BytesIO()
            np.save(stream, array)
            content = stream.getvalue()
            if generator.random() < 0.3:
                shape = tuple(generator.choices(NUMBERS, k=generator.randrange(4)))
                kind = generator.choice(
                    ("<f4", "<U1", "|S1", "<U100000000", "|O", "<i8", "|b1", "<c16", "|V8")
                )
                text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
                version, form = generator.choice(((b"\1\0", "<H"), (b"\2\0", "<I"), (b"\3\0", "<I")))
                size = len(text) + 1 if generator.random() < 0.7 else generator.choice(NUMBERS)
                size %= 1 << 8 * struct.calcsize(form)
                content = b"\x93NUMPY" + version + struct.pack(form, size) + text + b"\n" + bytes(1000)
            return content

        def make() -> bytes:
            arrays = {"images": self.x, "labels": self.y, "text": self.text, "classes": np.array(self.names)}
            data = zip_of({f"{name}.npy": header(array) for name, array in arrays.items()}, generator)
            return damage(data, generator) if generator.random() < 0.5 else data

        def read(file: Path) -> None:
            FewShotClassifier("arrays", "zero_shot", None, calibrate=False).fit(file)

        return fuzz_made(".npz", self.folder / "x.npz", read, count, generator, make)

    def label_table(self, count: int, generator: random.Random) -> Tally:
        """Labels as a column of a table."""
        from prolip.encoders.precomputed import read_embeddings

        path = self.folder / "labels.csv"
        path.write_text("file,label\n" + "".join(f"{k}.jpg,{self.names[k]}\n" for k in self.y))
        read = lambda file: read_embeddings(self.x, file, self.text, self.names)  # noqa: E731
        return fuzz_bytes(".csv of labels", path, read, count, generator)

    def class_list(self, count: int, generator: random.Random) -> Tally:
        """Class names, one on each line."""
        from prolip.encoders.precomputed import read_embeddings

        path = self.folder / "classes.txt"
        path.write_text("\n".join(self.names))
        read = lambda file: read_embeddings(self.x, self.y, self.text, file)  # noqa: E731
        return fuzz_bytes(".txt of classes", path, read, count, generator)

    def descriptions(self, count: int, generator: random.Random) -> Tally:
        """Sentences about classes, as JSON and as CSV."""
        (self.folder / "d.json").write_text(json.dumps({"red": ["a red thing", "so red"], "blue": "the sea"}))
        (self.folder / "d.csv").write_text('class,text\nred,"a red thing",so red\nblue,the sea\n')
        half = count // 2
        tally = fuzz_bytes("descriptions", self.folder / "d.json", as_descriptions, half, generator)
        other = fuzz_bytes("descriptions", self.folder / "d.csv", as_descriptions, count - half, generator)
        return _joined(tally, other)

    def groups(self, count: int, generator: random.Random) -> Tally:
        """Groups of classes, as JSON and as CSV."""
        (self.folder / "g.json").write_text(json.dumps({"warm": ["red"], "cold": ["blue", "green"]}))
        (self.folder / "g.csv").write_text("class,group\nred,warm\nblue,cold\ngreen,cold\n")
        read = lambda file: read_groups(file, self.names)  # noqa: E731
        half = count // 2
        tally = fuzz_bytes("groups", self.folder / "g.json", read, half, generator)
        return _joined(tally, fuzz_bytes("groups", self.folder / "g.csv", read, count - half, generator))

    def rows_to_reproject(self, count: int, generator: random.Random) -> Tally:
        """Features that are read a block at a time."""
        from prolip.core import Head
        from prolip.export.reproject import reproject

        np.save(self.folder / "rows.npy", self.x)
        read = lambda file: reproject(file, Head(np.eye(8)), self.folder / "z.npy")  # noqa: E731
        return fuzz_bytes("reproject .npy", self.folder / "rows.npy", read, count, generator)

    def json_file(self, count: int, generator: random.Random) -> Tally:
        """Any JSON."""
        path = self.folder / "a.json"
        path.write_text(json.dumps(keep.describe(self.models[0].model_)))
        return fuzz_bytes("JSON", path, read_json, count, generator)

    def tensor_file(self, count: int, generator: random.Random) -> Tally:
        """Any safetensors."""
        path = self.folder / "a.safetensors"
        write_tensors(path, {"x": self.x, "y": self.y})
        return fuzz_bytes(
            "safetensors", path, lambda file: parse_tensors(read_bytes(file), file), count, generator
        )

    def project(self, count: int, generator: random.Random) -> Tally:
        """A project of the application: each of its files, as bytes and as JSON."""
        from prolip.app import edits, journal
        from prolip.app.project import Project

        tally, folder = Tally("project"), self.folder / "project"

        def read() -> None:
            with Project.open(folder) as project:
                for key in project.state.ordered_classes():
                    project.state.members(key)
                project.commit(lambda state: edits.add_class(state, "another"))
                project.undo()

        with Project.open(folder) as project:
            project.commit(lambda state: edits.add_class(state, "cat"))
            project.commit(lambda state: edits.add_class(state, "dog"))
            project.commit(lambda state: edits.add_image(state, "a" * 64, "1.jpg", "1"))
        with journal.Journal.open(folder) as opened:
            opened.compact()
        with Project.open(folder) as project:
            project.commit(lambda state: edits.label_images(state, ["a" * 64], "2"))
            project.commit(lambda state: edits.remove_class(state, "1"))
        files = {
            file: file.read_bytes() for file in sorted(folder.iterdir()) if file.suffix in (".json", ".jsonl")
        }
        assert len(files) == 3
        for _ in range(count):
            for file in folder.iterdir():
                if file.is_file():
                    file.unlink()
            for file, content in files.items():
                file.write_bytes(content)
            file = generator.choice(list(files))
            content = files[file]
            if generator.random() < 0.6:
                lines = [json.loads(line) for line in content.splitlines()]
                k = generator.randrange(len(lines))
                lines[k] = distort(lines[k], generator)
                content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
            else:
                content = damage(content, generator)
            file.write_bytes(content)
            attempt(tally, read)
        return tally

    # Files of ours

    def answers_csv(self, count: int, generator: random.Random) -> Tally:
        """Answers that a run goes on with."""
        return self._answers("csv", count, generator)

    def answers_jsonl(self, count: int, generator: random.Random) -> Tally:
        """The same, as JSON lines."""
        return self._answers("jsonl", count, generator)

    def _answers(self, suffix: str, count: int, generator: random.Random) -> Tally:
        """A file is taken over or refused; refused, it stays as it is."""
        path = self.folder / f"answers.{suffix}"
        path.unlink(missing_ok=True)
        found = [
            {"image": f'{k}\n,".jpg', "class": "=red", "probability": 0.5, "top": [{}]} for k in range(5)
        ]
        with PredictionFile(path, 1, False, "r1").opened() as file:
            file.write(found)

        def read(path: Path) -> None:
            before = path.read_bytes()
            file = PredictionFile(path, 1, False, "r1")
            try:
                with file.opened():
                    file.write([one for one in found if one["image"] not in file.done])
            except ProlipError:
                if path.read_bytes() != before:
                    raise AssertionError("a file that was refused was changed") from None
                raise
            again = PredictionFile(path, 1, False, "r1")
            with again.opened():
                if not {one["image"] for one in found} <= again.done:
                    raise AssertionError("answers are lost")

        return fuzz_bytes(f"answers .{suffix}", path, read, count, generator)

    def model_bytes(self, count: int, generator: random.Random) -> Tally:
        """Each file of a saved model as bytes: it answers as before, or is refused."""
        tally, path = Tally("saved model, bytes"), self.folder / "model"
        self.models[0].save(path)
        expected = self._logits(path)
        files = {file: file.read_bytes() for file in sorted(path.iterdir())}
        for _ in range(count):
            file = generator.choice(list(files))
            file.write_bytes(damage(files[file], generator))
            attempt(tally, lambda: self._logits(path), expected)
            file.write_bytes(files[file])
        return tally

    def _logits(self, path: Path) -> str:
        model = FewShotClassifier.load(path).model_
        return hashlib.sha256(model.logits(self.x).tobytes()).hexdigest()

    def model_crafted(self, count: int, generator: random.Random) -> Tally:
        """A saved model with valid checksums and something in it that does not belong."""
        tally, path = Tally("saved model, crafted"), self.folder / "crafted"
        path.mkdir(exist_ok=True)
        for _ in range(count):
            model = generator.choice(self.models).model_
            hashes = np.frombuffer(b"".join(model.support.hashes), np.uint8).reshape(-1, 32)
            tensors = {**model.fitted.tensors(), **model.confidence.tensors()}
            tensors |= {"text": model.text.rows, "support": hashes}
            support = {"features": model.support.task.x, "labels": model.support.task.y}
            config = keep.describe(model)
            match generator.randrange(3):
                case 0:
                    config = distort(config, generator)
                case 1:
                    tensors = twist(tensors, generator)
                case 2:
                    support = twist(support, generator)
            craft(path, config if isinstance(config, dict) else {}, tensors, support)
            attempt(tally, lambda: self._use(path))
        return tally

    def _use(self, path: Path) -> None:
        """All that is done with a model that loads, without fitting it again."""
        clf = FewShotClassifier.load(path)
        probabilities = clf.predict_proba(self.x)
        if probabilities.shape != (12, len(clf.classes_)) or not np.isfinite(probabilities).all():
            raise AssertionError(f"probabilities of shape {probabilities.shape}")
        if clf.confidence_.out_of_distribution is not None:
            clf.predict(self.x, reject=True)
        model_card(keep.describe(clf.model_), {"prolip.json"}, "model").encode()
        keep.save(clf.model_, self.folder / "saved again", card=True)

    def adapter_crafted(self, count: int, generator: random.Random) -> Tally:
        """An adapter folder."""
        from prolip.export.adapter import read_adapter

        tally, path = Tally("adapter"), self.folder / "adapter"
        path.mkdir(exist_ok=True)
        whole = {
            "adapter_type": "prolip", "format": 1, "base_model": "offline", "fingerprint": "f",
            "base_weights_sha256": None,
        }  # fmt: skip
        for _ in range(count):
            payload = as_safetensors({"scale": np.array(1.0, np.float32), "head.weight": self.x})
            if generator.random() < 0.5:
                payload = damage(payload, generator)
            config = distort({**whole, "sha256": hashlib.sha256(payload).hexdigest()}, generator)
            text = json.dumps(config).encode()
            (path / "prolip_adapter.safetensors").write_bytes(payload)
            broken = generator.random() < 0.3
            (path / "prolip_adapter.json").write_bytes(damage(text, generator) if broken else text)
            attempt(tally, lambda: read_adapter(path))
        return tally

    def cache(self, count: int, generator: random.Random) -> Tally:
        """A cached array is what was computed, whatever lies in the cache."""
        from prolip.encoders.cached_arrays import cached_arrays
        from prolip.io.files import cache_dir

        def read(_: Path) -> bytes:
            found, problem = cached_arrays("fuzzed", lambda: {"weight": self.x})
            if problem is not None:
                raise AssertionError(problem)
            return found["weight"].tobytes()

        read(self.folder)
        return fuzz_bytes("cached arrays", cache_dir() / "fuzzed.safetensors", read, count, generator, True)

    def problem(self, count: int, generator: random.Random) -> Tally:
        """A problem of bench that is whole is what was written."""
        from prolip.core import Head, Text
        from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
        from prolip.research.running.encoded_file import Encoding, is_intact, read_encoded, write_encoding

        split = EncodedSplit(self.y.tolist(), self.x[None], np.arange(12))
        texts = {"own": Text(self.text, tuple(self.names))}
        whole = EncodedDataset(
            "toy", tuple(self.names), Head(np.eye(8)), 10.0, texts, {"train": split, "test": split},
            encoder="offline", templates={"own": ("a {}.",)},
        )  # fmt: skip
        path = self.folder / "problem.safetensors"
        hashes = np.zeros((12, 32), np.uint8)
        write_encoding(Encoding(whole, {"train": hashes, "test": hashes}, "{}"), path)

        def read(file: Path) -> bytes:
            sound = is_intact(file)
            found = read_encoded(str(file)).splits["train"].x.tobytes()
            return found if sound else self.x[None].tobytes()

        return fuzz_bytes("bench problem", path, read, count, generator, True)

    def feature_store(self, count: int, generator: random.Random) -> Tally:
        """A stored row is what was stored, or is gone."""
        from prolip.features.store import FeatureStore, Space

        tally, path = Tally("feature store"), self.folder / "space"
        keys = [bytes([k]) * 32 for k in range(12)]
        for _ in range(count):
            for file in path.glob("*"):
                file.unlink()
            Space(FeatureStore(path), "d", 8).add(keys, [0] * 12, self.x)
            (file,) = path.glob("*.sqlite")
            file.write_bytes(damage(file.read_bytes(), generator))

            def read() -> bool:
                space = Space(FeatureStore(path), "d", 8)
                rows = [space.get(key, 0) for key in keys]
                return all(row is None or np.array_equal(row, x) for row, x in zip(rows, self.x, strict=True))

            attempt(tally, read, True)
        return tally

    def results(self, count: int, generator: random.Random) -> Tally:
        """A file of results, used as a run and a table use it."""
        from prolip.research.catalogue import experiment
        from prolip.research.protocols.run import Run
        from prolip.research.running.plan import Plan
        from prolip.research.running.result_store import ResultStore

        path = self.folder / "results.sqlite"
        path.unlink(missing_ok=True)
        runs = tuple(Run("zero_shot", shots=1, seed=k, line="zero_shot", model="offline") for k in range(9))
        whole = Plan(experiment("validation_free"), ("toy",), ("offline",), (1,), (1,), 1, runs=runs)
        with ResultStore(path) as store:
            number = store.add_plan(whole, [f"key{k}" for k in range(9)])
            for k in range(5):
                store.finish(f"key{k}", {"accuracy": k / 10}, None, 0.1)

        def read(file: Path) -> None:
            for journal in file.parent.glob("results.sqlite-*"):
                journal.unlink()
            with ResultStore(file) as store:
                store.status(number)
                store.last_plan("validation_free")
                store.timings()
                for key in store.claim(number, 2):
                    store.finish(key, {"accuracy": 0.5}, None, 0.1)

        return fuzz_bytes("SQLite results", path, read, count, generator)


def craft(
    path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], support: dict[str, np.ndarray]
) -> None:
    """A saved model's folder around anything, with checksums that are right."""
    for file in path.iterdir():
        file.unlink()
    files = {}
    for kind, arrays in (("prolip", tensors), ("support", support)):
        payload = as_safetensors(arrays)
        digest = hashlib.sha256(payload).hexdigest()
        files[f"{kind}-{digest[:16]}.safetensors"] = digest
        (path / f"{kind}-{digest[:16]}.safetensors").write_bytes(payload)
    config = {"format": 3, **config, "files": files}
    checksum = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    (path / "prolip.json").write_text(json.dumps({**config, "checksum": checksum}))


def _joined(first: Tally, second: Tally) -> Tally:
    return Tally(
        first.name,
        first.found + second.found,
        first.examples + second.examples,
        first.inputs + second.inputs,
        first.refused + second.refused,
        max(first.seconds, second.seconds),
        max(first.megabytes, second.megabytes),
    )
