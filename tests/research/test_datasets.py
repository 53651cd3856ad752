"""Each reader against a small tree in the real layout; and the real split files where they are at hand."""

import json

import pytest

from prolip.core import InputError
from prolip.core.errors import UnknownNameError
from prolip.encoders.offline import imagenet_names
from prolip.research.datasets import DATASETS, Benchmark, find_dataset, read_dataset
from prolip.research.datasets.check import check_dataset, check_datasets

LISTED = [name for name, dataset in DATASETS.items() if dataset.kind == "split"]


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def make_split(root, name, rows):
    dataset = DATASETS[name]
    folder = root / dataset.folder
    for split in rows.values():
        for path, _, _ in split:
            touch(folder / dataset.images[0] / path)
    (folder / dataset.split_file).write_text(json.dumps(rows))
    return folder


ROWS = {
    "train": [["b/1.jpg", 1, "sea_or_lake"], ["a/1.jpg", 0, "River"], ["b/sh2.jpg", 1, "sea_or_lake"]],
    "val": [["a/2.jpg", 0, "River"]],
    "test": [["b/shark.jpg", 1, "sea_or_lake"], ["a/3.jpg", 0, "River"]],
}


@pytest.mark.parametrize("name", LISTED)
def test_a_split_file_gives_parts_in_its_order(tmp_path, name):
    folder = make_split(tmp_path, name, ROWS)

    benchmark = read_dataset(name, tmp_path)

    train = benchmark.splits["train"]
    images = folder / DATASETS[name].images[0]
    assert train.images == [images / "b/1.jpg", images / "a/1.jpg", images / "b/sh2.jpg"]
    assert train.labels == [1, 0, 1]
    assert benchmark.names == ("River", "sea or lake")
    assert [len(benchmark.splits[p]) for p in ("train", "val", "test")] == [3, 1, 2]
    assert benchmark.templates[0].count("{}") == 1


def test_aircraft_reads_its_lists(tmp_path):
    folder = tmp_path / "fgvc_aircraft"
    folder.mkdir()
    (folder / "variants.txt").write_text("707-320\nA300B4\nChallenger 600\n")
    for split, line in (("train", "0056978 Challenger 600"), ("val", "1 707-320"), ("test", "2 A300B4")):
        (folder / f"images_variant_{split}.txt").write_text(line + "\n")

    benchmark = read_dataset("FGVCAircraft", tmp_path)

    assert benchmark.splits["train"].images == [folder / "images" / "0056978.jpg"]
    assert benchmark.splits["train"].labels == [2]
    assert benchmark.names == ("707-320", "A300B4", "Challenger 600")


IDS = ["n01440764", "n01443537", "n01484850", "n02099601"]


def make_classnames(folder):
    folder.mkdir(parents=True, exist_ok=True)
    names = ["tench", "goldfish", "great white shark", "golden retriever"]
    lines = [f"{wordnet} {name}\n" for wordnet, name in zip(IDS, names, strict=True)]
    (folder / "classnames.txt").write_text("".join(lines))


@pytest.mark.parametrize("home", ["images", "."])
def test_a_part_of_imagenet_with_its_classnames(tmp_path, home):
    make_classnames(tmp_path / "imagenet")
    for wordnet in IDS[:2]:
        touch(tmp_path / "imagenet" / home / "val" / wordnet / "ILSVRC2012_val_1.JPEG")
        for i in (2, 1):
            touch(tmp_path / "imagenet" / home / "train" / wordnet / f"{wordnet}_{i}.JPEG")

    benchmark = read_dataset("imagenet", tmp_path)

    assert benchmark.names == ("tench", "goldfish")
    assert [p.name for p in benchmark.splits["train"].images][:2] == ["n01440764_1.JPEG", "n01440764_2.JPEG"]
    assert benchmark.splits["test"].labels == [0, 1]
    assert len(benchmark.templates) == 7


def test_a_whole_imagenet_takes_the_names_of_the_package(tmp_path):
    for k in range(1000):
        (tmp_path / "imagenet" / "images" / "val" / f"n{k:08d}").mkdir(parents=True)

    benchmark = read_dataset("imagenet", tmp_path)

    assert benchmark.names == imagenet_names()  # 'missile' and 'sunglasses' are there twice


@pytest.mark.parametrize(("name", "home"), [("imagenet_a", "imagenet-a"), ("imagenet_r", "imagenet-r")])
def test_variants_know_their_places_in_imagenet(tmp_path, name, home):
    folder = tmp_path / DATASETS[name].folder
    make_classnames(folder)
    touch(folder / home / IDS[2] / "0.01_great_white_shark _ great_white_shark_0.5.jpg")
    touch(folder / home / IDS[3] / "1.jpg")
    touch(folder / home / "README.txt")

    benchmark = read_dataset(name, tmp_path)

    # A name with "sh" in it is kept, and the classes are not the first of ImageNet's.
    assert len(benchmark.splits["test"]) == 2
    assert benchmark.splits["test"].labels == [0, 1]
    assert benchmark.imagenet_labels == (2, 3)
    assert benchmark.names == ("great white shark", "golden retriever")


def test_a_variant_takes_the_ids_from_imagenet_beside_it(tmp_path):
    for wordnet in IDS:
        touch(tmp_path / "imagenet" / "images" / "val" / wordnet / "1.JPEG")
    make_classnames(tmp_path / "imagenet")
    touch(tmp_path / "imagenet-sketch" / "images" / IDS[1] / "sketch_1.JPEG")

    assert read_dataset("imagenet-sketch", tmp_path).imagenet_labels == (1,)


def test_v2_folders_are_labels_and_sort_as_numbers(tmp_path):
    home = tmp_path / "imagenetv2" / "imagenetv2-matched-frequency-format-val"
    for label in range(12):
        touch(home / str(label) / "a.jpeg")

    benchmark = read_dataset("imagenet_v2", tmp_path)

    assert [p.parent.name for p in benchmark.splits["test"].images] == [str(k) for k in range(12)]
    assert benchmark.names[10] == imagenet_names()[10]
    assert benchmark.imagenet_labels == tuple(range(12))


def test_a_folder_of_images_stands_in(photos):
    benchmark = read_dataset("photos", photos.parent)

    assert benchmark.names == ("blue", "green", "red")
    assert {split: len(images) for split, images in benchmark.splits.items()} == {"train": 18, "test": 12}


def test_without_a_test_part_every_second_image_tests(photos):
    benchmark = read_dataset("train", photos)

    assert {split: len(images) for split, images in benchmark.splits.items()} == {"train": 9, "test": 9}
    assert not set(benchmark.splits["train"].images) & set(benchmark.splits["test"].images)


def test_what_is_missing_is_said(tmp_path):
    folder = make_split(tmp_path, "eurosat", ROWS)
    (folder / "2750" / "a" / "3.jpg").unlink()

    found = {item.dataset.name: item for item in check_datasets(tmp_path)}

    assert found["dtd"].state == "missing"
    assert "robots.ox.ac.uk" in found["dtd"].problems[0]
    assert found["eurosat"].state == "incomplete"
    assert "3 of 13,500 train images" in found["eurosat"].problems
    assert found["eurosat"].counts == {"train": 3, "val": 1, "test": 1}
    with pytest.raises(UnknownNameError) as error:
        find_dataset("oxford_pet", tmp_path)
    assert "oxford_pets" in error.value.suggestions
    for spelling in ("Stanford-Cars", "stanford_cars", "StanfordCars"):
        assert find_dataset(spelling, tmp_path) is DATASETS["stanford_cars"]
    assert find_dataset("oxford_flowers", tmp_path) is DATASETS["flowers102"]  # by its folder


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"train": []}',
        '{"train": [["a.jpg", "first", "a"]], "val": [], "test": []}',
        '{"train": [["a.jpg", 0, "a"], ["b.jpg", 0, "b"]], "val": [], "test": []}',
        '{"train": [["a.jpg", 2, "a"]], "val": [], "test": []}',
    ],
)
def test_a_broken_split_file_is_refused(tmp_path, content):
    (tmp_path / "dtd").mkdir()
    (tmp_path / "dtd" / DATASETS["dtd"].split_file).write_text(content)
    with pytest.raises(InputError):
        read_dataset("dtd", tmp_path)


def test_prompts_of_other_programs():
    photo, seven = "a photo of a {}.", tuple(f"{k} {{}}" for k in range(7))
    pets = Benchmark(
        "oxford_pets", "", {}, ("great pyrenees",), ("{}, a pet.",), written_names=("great_pyrenees",)
    )
    imagenet = Benchmark("imagenet", "", {}, ("tench",), seven)
    assert [pets.prompts(name)[1] for name in ("own", "photo", "coop", "clap")] == [
        ("{}, a pet.",), (photo,), ("{}, a pet.",), ("{}, a pet.",),
    ]  # fmt: skip
    found = [imagenet.prompts(name)[1] for name in ("own", "coop", "clap")]
    assert found == [seven, (photo,), (*seven, photo)]
    assert pets.prompts("clap")[0] == ("great_pyrenees",)
    assert imagenet.prompts("clap")[0] == ("tench",)


WORDS = "n01440764 tench\nn01443537 goldfish\n"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("imagenet", {"imagenet/readme.txt": ""}),  # no folder val
        ("imagenet", {"imagenet/val/n01440764/1.JPEG": ""}),  # one class of 1,000, without its name
        ("imagenet", {"imagenet/val/n01440764/1.JPEG": "", "imagenet/classnames.txt": "n01440764\n"}),
        ("imagenet_r", {"imagenet-rendition/readme.txt": ""}),  # no class folders
        ("imagenet_r", {"imagenet-rendition/imagenet-r/n01440764/1.jpg": ""}),  # nothing says which class
        (  # not a class of ImageNet
            "imagenet_r",
            {
                "imagenet-rendition/classnames.txt": WORDS,
                "imagenet-rendition/imagenet-r/n09999999/1.jpg": "",
            },
        ),
    ],
)
def test_folders_that_are_no_imagenet(tmp_path, name, files):
    for path, text in files.items():
        touch(tmp_path / path).write_text(text)
    with pytest.raises(InputError):
        read_dataset(name, tmp_path)
    found = check_dataset(DATASETS[name], tmp_path)
    assert (found.state, len(found.problems), found.counts) == ("incomplete", 1, {})


def test_a_split_or_the_images_may_be_missing(tmp_path):
    folder = make_split(tmp_path, "eurosat", ROWS)
    (folder / "2750").rename(folder / "elsewhere")
    found = check_dataset(DATASETS["eurosat"], tmp_path)
    assert (found.state, found.counts, found.classes) == ("incomplete", {}, 2)
    assert str(folder / "2750") in found.problems[0]
    make_classnames(tmp_path / "imagenet")
    touch(tmp_path / "imagenet" / "val" / IDS[0] / "1.JPEG")
    found = check_dataset(DATASETS["imagenet"], tmp_path)
    assert (found.state, found.counts, found.classes) == ("incomplete", {"test": 1}, 1)
    assert any("train" in problem for problem in found.problems)
