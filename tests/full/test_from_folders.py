"""What docs/guides/experiments.md shows for real CLIP, from the datasets' own folders to a table.

The folders are in each dataset's real layout, with a few tiny pictures; the model has the real architecture,
tiny and with random weights, in the place of the one that would come from the hub.
"""

import json

import pytest

from pictures import blotch
from prolip.research.catalogue.published import BACKBONES
from prolip.research.datasets import DATASETS, ELEVEN, VARIANTS
from prolip.research.datasets.check import check_datasets
from tiny_models import TOWERS, write_folder

IDS = {"n01440764": "tench", "n01443537": "goldfish"}
NAMES = ("red", "blue")
COLOURS = ((200, 40, 40), (40, 40, 200))
PARTS = {"train": 2, "val": 2, "test": 3}


def picture(path, label, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    blotch(COLOURS[label], seed, size=24).save(path, "JPEG")


def write_listed(root, dataset):
    """A folder with CoOp's split file: {"train": [[path, label, class name], ..], ..}."""
    folder, split = root / dataset.folder, {part: [] for part in PARTS}
    for label, name in enumerate(NAMES):
        for part, count in PARTS.items():
            for i in range(count):
                relative = f"{name}/{part}_{i}.jpg"
                picture(folder / dataset.images[0] / relative, label, 10 * len(part) + i)
                split[part].append([relative, label, name])
    (folder / dataset.split_file).write_text(json.dumps(split))


def write_aircraft(root):
    folder = root / "fgvc_aircraft"
    for part, count in PARTS.items():
        lines = []
        for label, name in enumerate(NAMES):
            for i in range(count):
                picture(folder / "images" / f"{part}{label}{i}.jpg", label, 10 * len(part) + i)
                lines.append(f"{part}{label}{i} {name}\n")
        (folder / f"images_variant_{part}.txt").write_text("".join(lines))
    (folder / "variants.txt").write_text("".join(f"{name}\n" for name in NAMES))


def write_imagenet(root):
    folders = {
        "imagenet/images/train": 4,
        "imagenet/images/val": 3,
        "imagenet-sketch/images": 3,
        "imagenet-adversarial/imagenet-a": 3,
        "imagenet-rendition/imagenet-r": 3,
    }
    for home, count in folders.items():
        for label, wordnet in enumerate(IDS):
            for i in range(count):
                picture(root / home / wordnet / f"{wordnet}_{i}.JPEG", label, len(home) + i)
    for label in range(2):
        for i in range(3):
            home = root / "imagenetv2" / "imagenetv2-matched-frequency-format-val" / str(label)
            picture(home / f"{i}.jpeg", label, 70 + i)
    lines = [f"{wordnet} {name}\n" for wordnet, name in IDS.items()]
    (root / "imagenet" / "classnames.txt").write_text("".join(lines))


@pytest.fixture
def data(tmp_path, monkeypatch):
    """All eleven datasets and the four variants; "ViT-B/16" is a tiny one on the disk."""
    root = tmp_path / "data"
    for name in ELEVEN:
        if DATASETS[name].split_file:
            write_listed(root, DATASETS[name])
    write_aircraft(root)
    write_imagenet(root)
    model = write_folder(tmp_path / "vit", TOWERS["vit"])
    monkeypatch.setitem(BACKBONES, "ViT-B/16", f"open_clip:local-dir:{model}")
    return root


def test_from_folders_to_tables(data, tmp_path, prolip):
    there = {check.dataset.name for check in check_datasets(data) if check.state != "missing"}
    assert there == {*ELEVEN, *VARIANTS}
    results = tmp_path / "results.sqlite"
    common = ["--model", "ViT-B/16", "--data", data, "--results", results]
    once = ["--seeds", "1", "--views", "2", "--jobs", "1", "--device", "cpu", "--json"]
    code, out, err = prolip("bench", "run", "validation_free", *common, "--shots", "1", *once)
    assert code == 0, err
    assert json.loads(out)["done"] >= 11 * 10
    code, out, _ = prolip(
        "bench", "table", "validation_free", "--results", results, "--format", "csv", "--against", "prolip"
    )
    assert code == 0
    assert "ProLIP, exact" in out
    lines = ["--line", "zero_shot", "prolip_adam", "prolip", "task_res", "tip_adapter_f"]
    code, out, err = prolip("bench", "run", "domain", *common, "--shots", "1", *lines, *once)
    assert code == 0, err
    code, out, _ = prolip("bench", "table", "domain", "--results", results, "--format", "csv")
    assert all(title in out for title in ("ImageNet-V2", "ImageNet-Sketch", "ImageNet-A", "ImageNet-R"))
