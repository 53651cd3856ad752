"""Images out of the formats and objects of other libraries: the same images, the same labels."""

import io

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api.classifier import TrainingImagesWarning
from prolip.api.inputs import as_images, read_labelled
from prolip.core.errors import InputError, ProlipError, UsageError
from prolip.data import list_images, read_images
from prolip.data.folders import MissingSplitError
from prolip.features import load_image
from prolip.features.images import ImageError

NAMES = sorted(COLOURS)
LABELS = [name for name in NAMES for _ in range(2)]


def png(image):
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def pictures():
    return [blotch(COLOURS[name], i, size=8) for i, name in enumerate(LABELS)]


@pytest.fixture
def files(pictures, tmp_path):
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    return [f"{i}.png" for i in range(len(pictures))]


def pixels(images):
    return [np.asarray(load_image(image)).tolist() for image in images]


def check(source, pictures, offline):
    """Read by every door."""
    images = read_images(source)
    assert [images.classes[k] for k in images.labels] == LABELS
    expected = pixels(pictures)
    assert pixels(images.images) == expected
    assert pixels(as_images(source)) == expected
    labelled = read_labelled(source, None, split="train")
    assert (pixels(labelled.images), labelled.label_names) == (expected, LABELS)
    listed = [str(image) for image in images.images]
    assert len(set(listed)) == len(listed)


# --- Parquet


def write_parquet(place, columns, **options):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), place, **options)
    return place


def test_parquet_with_paths_and_with_bytes(pictures, files, tmp_path, offline):
    check(write_parquet(tmp_path / "a.parquet", {"File_name": files, "Label": LABELS}), pictures, offline)
    named = write_parquet(tmp_path / "n.parquet", {"Id": files, "label": [0] * 6, "breed": LABELS})
    images = read_images(named, image_column="id", label_column="breed")
    assert (pixels(images.images), len(images.classes)) == (pixels(pictures), 3)
    content = [png(picture) for picture in pictures]
    named = write_parquet(tmp_path / "m.parquet", {"Photo": content, "breed": LABELS})
    images = read_images(named, image_column="photo", label_column="breed")
    assert (pixels(images.images), len(images.classes)) == (pixels(pictures), 3)
    rows = {"image": content, "label": LABELS, "day": list("aabbcc")}
    assert read_images(write_parquet(tmp_path / "g.parquet", rows), group_by="day").groups == tuple("aabbcc")
    check(write_parquet(tmp_path / "b.parquet", rows, row_group_size=4), pictures, offline)
    rows = {"image": [{"bytes": c, "path": None} for c in content], "label": LABELS}
    check(write_parquet(tmp_path / "c.parquet", rows, row_group_size=1), pictures, offline)
    assert pixels(list_images(write_parquet(tmp_path / "d.parquet", {"bytes": content}))) == pixels(pictures)


def test_parquet_with_paths_in_the_place_of_bytes(hugging_face, pictures, files, tmp_path, offline):
    rows = {"image": [{"bytes": None, "path": name} for name in files], "label": LABELS}
    check(write_parquet(tmp_path / "a.parquet", rows), pictures, offline)
    rows["image"][0] = {"bytes": None, "path": None}
    with pytest.raises(ImageError):
        load_image(list_images(write_parquet(tmp_path / "b.parquet", rows))[0])
    rows = {"image": [str(tmp_path / name) for name in files], "label": LABELS}
    written = hugging_face.Dataset.from_dict(rows).cast_column("image", hugging_face.Image())
    written.to_parquet(tmp_path / "c.parquet")
    assert pixels(read_images(tmp_path / "c.parquet").images) == pixels(pictures)


def test_parquet_that_is_wrong(files, tmp_path):
    with pytest.raises(InputError):
        read_images(write_parquet(tmp_path / "b.parquet", {"label": ["a", "b"]}))
    with pytest.raises(InputError):
        read_images(write_parquet(tmp_path / "c.parquet", {"path": files[:2], "label": ["a", None]}))
    with pytest.raises(InputError):
        read_images(write_parquet(tmp_path / "d.parquet", {"path": np.array([], str), "label": []}))
    listed = list_images(write_parquet(tmp_path / "e.parquet", {"image": [b"no image", None]}))
    for image in listed:
        with pytest.raises(ImageError):
            load_image(image)


def test_damaged_parquet_is_an_error_of_ours(pictures, tmp_path):
    rows = {"image": [png(picture) for picture in pictures], "label": LABELS}
    source = write_parquet(tmp_path / "a.parquet", rows, row_group_size=2)
    whole, rng = source.read_bytes(), np.random.default_rng(0)
    assert len(list_images(source)) == 6
    for _ in range(100):
        spoiled = bytearray(whole)
        for place in rng.integers(0, len(whole), 6):
            spoiled[place] = rng.integers(256)
        source.write_bytes(spoiled)
        try:
            listed = list_images(source)
        except ProlipError:
            continue
        for image in listed:
            try:
                load_image(image)
            except ProlipError:
                continue


# --- Hugging Face


@pytest.fixture
def hugging_face():
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets


@pytest.fixture
def dataset(hugging_face, pictures):
    kinds = {"img": hugging_face.Image(), "fine": hugging_face.ClassLabel(names=NAMES[::-1])}
    rows = {"img": pictures, "fine": [NAMES[::-1].index(name) for name in LABELS]}
    return hugging_face.Dataset.from_dict(rows, features=hugging_face.Features(kinds))


def test_datasets_of_hugging_face(hugging_face, dataset, pictures, tmp_path, offline):
    check(dataset, pictures, offline)
    dataset.save_to_disk(tmp_path / "saved")
    check(hugging_face.load_from_disk(tmp_path / "saved"), pictures, offline)
    check(str(tmp_path / "saved"), pictures, offline)
    assert pixels(list_images(tmp_path / "saved")) == pixels(pictures)
    dataset.to_parquet(tmp_path / "p.parquet")
    renamed = dataset.rename_columns({"img": "image", "fine": "label"})
    renamed.to_parquet(tmp_path / "p.parquet")  # labels are numbers there, their names stand in its schema
    check(tmp_path / "p.parquet", pictures, offline)


def test_columns_and_formats_of_hugging_face(dataset, pictures, offline):
    assert pixels(as_images(dataset["img"])) == pixels(pictures)
    labelled = read_labelled(dataset["img"], dataset["fine"], split="train")
    assert labelled.label_names == dataset["fine"][:]
    for library in ("numpy", "torch"):
        check(dataset.with_format(library), pictures, offline)


def test_splits_of_hugging_face(hugging_face, dataset, pictures, tmp_path):
    both = hugging_face.DatasetDict(train=dataset, test=dataset.select([0, 2]))
    both.save_to_disk(tmp_path / "both")
    for source in (both, tmp_path / "both"):
        assert len(read_images(source)) == 6
        images = read_images(source, "test")
        assert (images.split, [images.classes[k] for k in images.labels]) == ("test", ["blue", "green"])
        assert len(as_images(source)) == 8
        with pytest.raises(MissingSplitError):
            read_images(source, "val")


def test_datasets_that_are_wrong(hugging_face, dataset, tmp_path):
    with pytest.raises(UsageError):
        read_images(dataset.to_iterable_dataset())
    with pytest.raises(InputError):
        read_images(hugging_face.Dataset.from_dict({"text": ["a"], "label": [0]}))
    unknown = hugging_face.Features(img=hugging_face.Image(), fine=hugging_face.ClassLabel(names=NAMES))
    gap = hugging_face.Dataset.from_dict({"img": dataset["img"][:2], "fine": [0, None]}, features=unknown)
    with pytest.raises(InputError):
        read_images(gap)
    dataset.save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text("{")
    with pytest.raises(InputError):
        read_images(tmp_path / "saved")


# --- data frames


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_data_frames(library, pictures, files, tmp_path, offline, monkeypatch):
    module = pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    make = module.table if library == "pyarrow" else module.DataFrame
    check(make({"path": files, "class": LABELS}), pictures, offline)
    check(make({"image_path": files, "category": LABELS}), pictures, offline)
    images = read_images(make({"id": files, "breed": LABELS}), image_column="id", label_column="breed")
    assert (pixels(images.images), len(images.classes)) == (pixels(pictures), 3)
    check(make({"Image": [png(picture) for picture in pictures], "Label ": LABELS}), pictures, offline)
    images = read_images(
        make({"path": files, "label": [0, 0, 1, 1, 2, 2], "split": ["train"] * 4 + ["test"] * 2})
    )
    assert (images.classes, images.split) == (["0", "1"], "train")
    images = read_images(make({"path": files, "label": LABELS, "group": list("aabbcc")}))
    assert images.groups == tuple("aabbcc")
    with pytest.raises(InputError):
        read_images(make({"path": files[:2], "label": ["a", None]}))


def test_pandas_categories_pictures_and_gaps(pictures, offline):
    pandas = pytest.importorskip("pandas")
    check(pandas.DataFrame({"image": pictures, "label": pandas.Categorical(LABELS)}), pictures, offline)
    with pytest.raises(InputError):
        read_images(pandas.DataFrame({"image": pictures[:2], "label": [1.0, None]}))
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False)
    clf.fit(pandas.DataFrame({"image": pictures, "label": LABELS}))
    with pytest.warns(TrainingImagesWarning):
        assert clf.score(pandas.Series(pictures), pandas.Series(LABELS)) == 1.0


# --- torch and torchvision


def test_tensors_channels_first(pictures, offline):
    torch = pytest.importorskip("torch")
    array = np.stack([np.asarray(picture) for picture in pictures])
    batch = torch.tensor(array).permute(0, 3, 1, 2)
    expected = pixels(pictures)
    assert pixels(as_images(batch)) == expected
    assert pixels(as_images(batch[0])) == expected[:1]
    assert pixels(as_images(list(batch.float() / 255))) == expected
    assert pixels(as_images(torch.tensor(array))) == expected
    assert load_image(torch.zeros(3, 8, 3)).size == (3, 8)  # both ends would do: first, of torch
    labelled = read_labelled(batch, torch.tensor([0, 0, 1, 1, 2, 2]), split="train")
    assert labelled.classes == [0, 1, 2]


def test_datasets_of_torchvision(pictures, tmp_path, offline):
    torch, torchvision = pytest.importorskip("torch"), pytest.importorskip("torchvision")
    for i, (name, picture) in enumerate(zip(LABELS, pictures, strict=True)):
        (tmp_path / name).mkdir(exist_ok=True)
        picture.save(tmp_path / name / f"{i}.png")
    to_tensor = torchvision.transforms.ToTensor()
    folder = torchvision.datasets.ImageFolder(tmp_path, transform=to_tensor)
    check(folder, pictures, offline)
    check(torch.utils.data.Subset(folder, range(6)), pictures, offline)
    check(torch.utils.data.DataLoader(folder, batch_size=2), pictures, offline)
    tensors = torch.stack([to_tensor(picture) for picture in pictures])
    labels = torch.tensor([NAMES.index(name) for name in LABELS])
    pairs = torch.utils.data.TensorDataset(tensors, labels)  # which has no names of classes
    for source in (pairs, torch.utils.data.DataLoader(pairs, batch_size=4)):
        images = read_images(source)
        assert (images.classes, images.labels) == (["0", "1", "2"], labels.tolist())
        assert pixels(images.images) == pixels(pictures)
    fake = torchvision.datasets.FakeData(6, (3, 8, 8), 3, transform=to_tensor)
    fake.targets = [NAMES.index(name) for name in LABELS]
    assert [load_image(image).size for image in as_images(fake)] == [(8, 8)] * 6
    assert read_images(fake).classes == ["0", "1", "2"]


def test_a_report_becomes_a_data_frame(colour_model):
    pandas = pytest.importorskip("pandas")
    frame = colour_model.report().to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["class"].tolist() == ["blue", "green", "red"]
    assert frame["images"].sum() == 12
