"""What docs/guides/experiments.md shows for real CLIP, from the datasets' own folders to a table.

ImageNet, its variants and EuroSAT in their real layout, with a few tiny pictures; the model has the real
architecture, tiny and with random weights, in the place of the one that would come from the hub.
"""

import json

import pytest

from pictures import blotch
from prolip.research.catalogue.published import BACKBONES
from tiny_models import TOWERS, write_folder

IDS = {"n01440764": "tench", "n01443537": "goldfish"}
COLOURS = ((200, 40, 40), (40, 40, 200))
FOLDERS = {
    "imagenet/images/train": 4,
    "imagenet/images/val": 3,
    "imagenet-sketch/images": 3,
    "imagenet-adversarial/imagenet-a": 3,
    "imagenet-rendition/imagenet-r": 3,
    "imagenetv2/imagenetv2-matched-frequency-format-val": 3,
    "eurosat/2750": 7,
}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The folders; "ViT-B/16" is a tiny one on the disk."""
    root = tmp_path / "data"
    for home, count in FOLDERS.items():
        for label, wordnet in enumerate(IDS):
            folder = root / home / (str(label) if "v2" in home else wordnet)
            folder.mkdir(parents=True)
            for i in range(count):
                blotch(COLOURS[label], len(home) + i, size=24).save(folder / f"{i}.jpeg")
    lines = [f"{wordnet} {name}\n" for wordnet, name in IDS.items()]
    (root / "imagenet" / "classnames.txt").write_text("".join(lines))
    rows = [[f"{wordnet}/{i}.jpeg", k, IDS[wordnet]] for k, wordnet in enumerate(IDS) for i in range(7)]
    split = {"train": rows[::3], "val": rows[1::3], "test": rows[2::3]}
    (root / "eurosat" / "split_zhou_EuroSAT.json").write_text(json.dumps(split))
    model = write_folder(tmp_path / "vit", TOWERS["vit"])
    monkeypatch.setitem(BACKBONES, "ViT-B/16", f"open_clip:local-dir:{model}")
    return root


def test_from_folders_to_tables(data, tmp_path, prolip):
    results = tmp_path / "results.sqlite"
    common = ["--model", "ViT-B/16", "--data", data, "--results", results, "--shots", "1", "--seeds", "1"]
    common += ["--views", "2", "--jobs", "1", "--device", "cpu", "--json"]
    code, out, err = prolip("bench", "run", "validation_free", *common)
    assert code == 0, err
    assert json.loads(out)["done"] >= 2 * 10
    table = (
        "bench",
        "table",
        "validation_free",
        "--results",
        results,
        "--format",
        "csv",
        "--against",
        "prolip",
    )
    assert "ProLIP, exact" in prolip(*table)[1]
    lines = ["--line", "zero_shot", "prolip_adam", "prolip", "task_res", "tip_adapter_f"]
    code, out, err = prolip("bench", "run", "domain", *common, *lines)
    assert code == 0, err
    code, out, _ = prolip("bench", "table", "domain", "--results", results, "--format", "csv")
    assert all(title in out for title in ("ImageNet-V2", "ImageNet-Sketch", "ImageNet-A", "ImageNet-R"))
