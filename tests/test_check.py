"""`prolip check`: what to fix in a folder of images; moving it to quarantine, and back."""

import csv
import io
import json
import os
import re
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from prolip.api.quarantine import LIST, quarantine, read_quarantine, restore
from prolip.core import InputError, Task, UsageError
from prolip.data import builtin
from prolip.evaluate.out_of_distribution import outlier_scores


@pytest.fixture(scope="module")
def drawn():
    return builtin("textures", 10, split="train")


@pytest.fixture
def textures(drawn, tmp_path):
    """Five textures with one of each fault; what is wrong with which file."""
    root = tmp_path / "textures"
    kinds = ["striped", "dotted", "chequered", "cracked", "spiralled"]
    pictures = {k: [drawn.images[10 * drawn.classes.index(k) + i] for i in range(10)] for k in kinds}
    for kind in kinds:
        for split in ("train", "test"):
            (root / split / kind).mkdir(parents=True)
        for i, picture in enumerate(pictures[kind]):
            picture.save(root / ("test" if i > 7 else "train") / kind / f"{kind}{i}.png")
    train = root / "train"
    (train / "striped" / "striped0.png").rename(train / "dotted" / "lost.png")
    shutil.copy(train / "dotted" / "dotted1.png", train / "dotted" / "dotted1 again.png")
    small = pictures["cracked"][2].resize((96, 96), Image.Resampling.LANCZOS)
    small.save(train / "spiralled" / "torn.png")
    shutil.copy(root / "test" / "chequered" / "chequered9.png", train / "chequered" / "leaked.png")
    (train / "cracked" / "broken.png").write_bytes(b"no picture")
    (train / "woven").mkdir()
    drawn.images[10 * drawn.classes.index("woven")].save(train / "woven" / "single.png")
    return root


def files(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def findings(outcome):
    """File name: kind, label and suggestion."""
    return {(row["path"].rpartition("/")[2], row["kind"]): row for row in outcome["findings"]}


def test_each_fault_is_found(prolip, textures, tmp_path):
    before = files(textures)
    page, table = tmp_path / "check.html", tmp_path / "check.csv"
    code, out, err = prolip("check", textures, "--report", page, "--out", table, "--json")
    assert code == 0, err
    outcome = json.loads(out)
    found = findings(outcome)
    assert found["lost.png", "wrong-label"]["suggestion"] == "striped"
    assert found["broken.png", "unreadable"]["label"] == "cracked"
    same = [name for name, kind in found if kind == "copy"]
    assert len(same) == 1
    assert same[0] in ("dotted1.png", "dotted1 again.png")
    assert {name for name, kind in found if kind == "two-classes"} == {"cracked2.png", "torn.png"}
    assert found["leaked.png", "train-and-test"]["other"].endswith("test/chequered/chequered9.png")
    assert outcome["small_classes"] == ["woven"]
    assert files(textures) == before  # nothing is changed unless one says so
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["kind"], row["path"]) for row in rows] == [
        (r["kind"], r["path"]) for r in outcome["findings"]
    ]
    html = page.read_text()
    assert "probably striped" in html
    assert "data:image/jpeg;base64," in html
    shown = json.loads(re.search(r'id="data">(.*?)</script>', html)[1])
    lost = next(one for one in shown["images"] if one["name"].endswith("lost.png"))
    assert (lost["file"], lost["found"]) == ("train/dotted/lost.png", True)
    quality = found["lost.png", "wrong-label"]["score"]
    shown_quality = "below 0.01" if quality < 1e-4 else f"{100 * quality:.2f}"
    assert lost["lines"][2][0] == f"label quality {shown_quality}\u00a0%"
    assert {one["name"].split("/")[0] for one in shown["images"]} == {"train", "test"}
    assert shown["quarantine"] == f"{textures}-quarantine"


def test_a_picture_in_two_classes_names_the_one_in_the_other_class(prolip, textures):
    train = textures / "train"
    shutil.copy(train / "dotted" / "dotted1.png", train / "striped" / "dotted1.png")
    code, out, err = prolip("check", train, "--only", "two-classes", "--json")
    assert code == 0, err
    found = [row for row in json.loads(out)["findings"] if "dotted1" in row["path"]]
    pairs = [(row["label"], row["other"].split("/")[-2]) for row in found]
    assert pairs == [("dotted", "striped"), ("dotted", "striped"), ("striped", "dotted")]


def test_a_saved_model_is_asked_in_the_place_of_a_fit(prolip, drawn, textures, tmp_path):
    (textures / "train" / "cracked" / "broken.png").unlink()
    (textures / "train" / "dotted" / "dotted1 again.png").unlink()
    shutil.rmtree(textures / "train" / "woven")
    assert prolip("fit", textures, "-o", tmp_path / "m", "--method", "prolip", "--lam", "0.1")[0] == 0
    code, out, err = prolip("check", textures, "--saved", tmp_path / "m", "--only", "wrong-label", "--json")
    assert code == 0, err
    assert findings(json.loads(out))["lost.png", "wrong-label"]["suggestion"] == "striped"


def test_what_is_moved_to_quarantine_comes_back(prolip, textures, tmp_path):
    before, folder = files(textures), tmp_path / "quarantine"
    code, out, err = prolip(
        "check", textures, "--move", folder, "--only", "copy", "--only", "unreadable", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["moved"] == 2
    moved = {name: content for name, content in files(folder).items() if name != LIST}
    assert {**files(textures), **moved} == before
    assert not set(files(textures)) & set(moved)
    code, out, err = prolip("check", "--undo", folder, "--yes", "--json")
    assert code == 0, err
    assert json.loads(out) == {"back": 2, "left": []}
    assert files(textures) == before
    assert not folder.exists()


def test_images_that_are_named_are_moved_and_no_others(prolip, textures, tmp_path):
    before, folder = files(textures), tmp_path / "quarantine"
    names = ["train/dotted/dotted1 again.png", "train/striped/striped1.png"]
    assert prolip("check", textures, *names)[0] == 2  # not without --move
    assert prolip("check", textures, "--move", folder, "--only", "copy", *names)[0] == 2
    assert prolip("check", textures, "--move", folder, names[0], "no/such.png")[0] == 1
    assert prolip("check", textures, "--move", folder, tmp_path / "a.png")[0] == 1
    assert files(textures) == before
    code, out, err = prolip("check", textures, "--move", folder, names[0], textures / names[1], "--json")
    assert code == 0, err
    assert json.loads(out) == {"moved": 2, "quarantine": str(folder)}
    assert set(before) - set(files(textures)) == set(names)
    assert [one.why for one in read_quarantine(folder).files] == ["chosen", "chosen"]


def test_folders_in_a_class_folder_are_tidied_too(prolip, photos, tmp_path):
    broken = photos / "train" / "red" / "dark" / "old" / "broken.png"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no picture")
    code, _, err = prolip("check", photos, "--move", tmp_path / "quarantine", "--only", "unreadable")
    assert code == 0, err
    assert set(files(tmp_path / "quarantine")) == {LIST, "train/red/dark/old/broken.png"}


def test_images_in_an_archive_are_not_moved(prolip, photos, tmp_path):
    shutil.copy(photos / "train" / "red" / "0.png", photos / "train" / "red" / "again.png")
    shutil.make_archive(tmp_path / "photos", "zip", photos / "train")
    code, _, err = prolip(
        "check", tmp_path / "photos.zip", "--move", tmp_path / "quarantine", "--only", "copy"
    )
    assert code == 2
    assert "--out" in err
    assert not (tmp_path / "quarantine").exists()


def undo(folder):
    return restore(read_quarantine(folder))


@pytest.fixture
def heap(tmp_path):
    root = tmp_path / "photos"
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_run_that_is_killed_loses_nothing(heap, tmp_path, monkeypatch, after):
    """At whatever file it stops, all are in one place or the other, and undo finds them."""
    from prolip.io import placing

    before, calls, real = files(heap), [], placing.put

    def stops(*arguments):
        calls.append(arguments)
        if len(calls) > after:
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("prolip.api.quarantine.put", stops)
        with pytest.raises(KeyboardInterrupt):
            quarantine(tmp_path / "quarantine", [(heap / name, "copy") for name in before], heap)
    assert len(files(heap)) == 3 - after
    back, left = undo(tmp_path / "quarantine")
    assert (len(back), left) == (after, [])
    assert files(heap) == before


def test_a_run_after_one_that_was_killed_lists_each_file_once(heap, tmp_path, monkeypatch):
    folder, images = tmp_path / "quarantine", [(heap / "a/1.png", "copy"), (heap / "a/2.png", "copy")]
    with monkeypatch.context() as patched:
        patched.setattr("prolip.api.quarantine.put", lambda *_: sys.exit(1))
        with pytest.raises(SystemExit):
            quarantine(folder, images, heap)
    quarantine(folder, images, heap)
    back, left = undo(folder)
    assert (len(back), left) == (2, [])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_links_that_lead_nowhere_are_moved_and_pipes_stay(heap, tmp_path):
    os.mkfifo(heap / "a/pipe.png")
    (heap / "a/nowhere.png").symlink_to("gone.png")
    (heap / "a/round.png").symlink_to("round.png")
    names, folder = ["pipe.png", "nowhere.png", "round.png"], tmp_path / "quarantine"
    moved, left = quarantine(folder, [(heap / "a" / name, "unreadable") for name in names], heap)
    assert [one.place for one in moved] == ["a/nowhere.png", "a/round.png"]
    assert left == [(heap / "a/pipe.png", "it is not a regular file")]
    assert sorted(path.name for path in (heap / "a").iterdir()) == ["1.png", "2.png", "pipe.png"]
    (heap / "a/nowhere.png").symlink_to("elsewhere.png")
    back, kept = undo(folder)
    assert [one.place for one in back] == ["a/round.png"]
    assert [one.place for one, _ in kept] == ["a/nowhere.png"]
    assert (heap / "a/round.png").is_symlink()
    (heap / "a/nowhere.png").unlink()
    assert undo(folder)[1] == []
    assert os.path.realpath(heap / "a/nowhere.png") == str((heap / "a").resolve() / "gone.png")


def test_a_move_that_fails_lists_only_what_came(heap, tmp_path, monkeypatch):
    from prolip.io import placing

    folder, real = tmp_path / "quarantine", placing.put

    def full_disk(source, *arguments):
        if source.name == "2.png":
            raise InputError("the disk is full")
        return real(source, *arguments)

    monkeypatch.setattr("prolip.api.quarantine.put", full_disk)
    for name, listed in (("a/2.png", set()), ("a/1.png", {LIST, "a/1.png"})):
        with pytest.raises(InputError, match="full"):
            quarantine(folder, [(heap / name, "copy"), (heap / "a/2.png", "copy")], heap)
        assert set(files(folder)) == listed
        assert folder.exists() == bool(listed)
    monkeypatch.undo()
    back, left = undo(folder)
    assert ([one.place for one in back], left) == (["a/1.png"], [])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_the_command_moves_a_link_that_leads_nowhere(prolip, photos, tmp_path):
    link, folder = photos / "train" / "red" / "dangling.png", tmp_path / "quarantine"
    link.symlink_to("/nowhere.png")
    os.mkfifo(photos / "train" / "red" / "pipe.png")
    for moved in (1, 0):
        code, out, err = prolip("check", photos, "--move", folder, "--only", "unreadable", "--json")
        assert code == 0, err
        assert json.loads(out)["moved"] == moved
        assert "pipe.png stays" in err
        assert not link.is_symlink()
    code, out, err = prolip("check", "--undo", folder, "--yes", "--json")
    assert code == 0, err
    assert json.loads(out) == {"back": 1, "left": []}
    assert link.is_symlink()


def test_a_file_that_stands_in_the_way_stays_and_so_does_the_other(heap, tmp_path):
    folder = tmp_path / "quarantine"
    quarantine(folder, [(heap / "a/1.png", "copy"), (heap / "b/1.png", "copy")], heap)
    (heap / "a/1.png").write_text("another")
    back, left = undo(folder)
    assert [one.place for one in back] == ["b/1.png"]
    assert [one.place for one, _ in left] == ["a/1.png"]
    assert (heap / "a/1.png").read_text() == "another"
    assert (folder / "a/1.png").read_text() == "a/1.png"
    (heap / "a/1.png").unlink()
    assert undo(folder)[1] == []
    assert (heap / "a/1.png").read_text() == "a/1.png"


def test_more_may_be_moved_later_under_names_of_their_own(heap, tmp_path):
    folder = tmp_path / "quarantine"
    quarantine(folder, [(heap / "a/1.png", "copy")], heap)
    (heap / "a/1.png").write_text("a new one")
    quarantine(folder, [(heap / "a/1.png", "copy")], heap)
    assert set(files(folder)) == {LIST, "a/1.png", "a/1-2.png"}
    assert len(undo(folder)[1]) == 1  # both were at one place: the first is back, the second stays


def test_folders_that_will_not_do(heap, tmp_path):
    with pytest.raises(UsageError):
        quarantine(heap / "quarantine", [(heap / "a/1.png", "copy")], heap)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("x")
    with pytest.raises(UsageError):
        quarantine(tmp_path / "other", [(heap / "a/1.png", "copy")], heap)
    with pytest.raises(UsageError):
        quarantine(tmp_path / "quarantine", [(tmp_path / "other" / "mine.txt", "copy")], heap)
    with pytest.raises(UsageError):
        undo(tmp_path / "other")
    assert len(files(heap)) == 3


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("ABSOLUTE/victim", "k.jpg"),
        ("../victim", "k.jpg"),
        ("a/../../victim", "k.jpg"),
        ("link/victim", "k.jpg"),
        ("", "k.jpg"),
        ("a/new.jpg", "../secret"),
        ("a/new.jpg", "ABSOLUTE/secret"),
        ("a/new.jpg", "link/secret"),
    ],
)
def test_a_list_by_someone_else_moves_nothing_from_or_to_other_folders(heap, tmp_path, source, place):
    outside, folder = tmp_path / "home", tmp_path / "home" / "download"
    folder.mkdir(parents=True)
    (outside / "secret").write_text("mine")
    (folder / "k.jpg").write_text("planted")
    for parent in (heap, folder):
        (parent / "link").symlink_to(outside)
    forged = {
        "source": source.replace("ABSOLUTE", str(outside)),
        "place": place.replace("ABSOLUTE", str(outside)),
        "why": "",
    }
    outcome = {"format": "prolip-quarantine", "root": str(heap), "files": [forged]}
    (folder / LIST).write_text(json.dumps(outcome))
    before = files(tmp_path)
    for root in (None, heap):
        with pytest.raises(InputError, match="is not below"):
            read_quarantine(folder, root)
    assert files(tmp_path) == before


def test_undo_shows_the_moves_and_asks(prolip, heap, tmp_path, monkeypatch):
    folder = tmp_path / "quarantine"
    quarantine(folder, [(heap / "a/1.png", "copy")], heap)
    before = files(tmp_path)
    for options in ([], ["--json"]):
        code, _, err = prolip("check", "--undo", folder, *options)
        assert code == 2
        assert "--yes" in err
    for answer in ("n", "y"):
        assert files(tmp_path) == before
        terminal = io.StringIO(f"{answer}\n")
        terminal.isatty = lambda: True
        monkeypatch.setattr(sys, "stdin", terminal)
        code, out, err = prolip("check", "--undo", folder)
        assert "1.png" in out
        assert str(heap) in " ".join((out + err).split())
        assert code == (0 if answer == "y" else 1)
    assert (heap / "a/1.png").read_text() == "a/1.png"
    assert not folder.exists()


def test_images_go_back_to_a_folder_that_has_moved(prolip, heap, tmp_path):
    folder = tmp_path / "quarantine"
    quarantine(folder, [(heap / "a/1.png", "copy")], heap)
    heap.rename(tmp_path / "moved")
    code, _, err = prolip("check", tmp_path / "moved", "--undo", folder, "--yes")
    assert code == 0, err
    assert (tmp_path / "moved" / "a/1.png").read_text() == "a/1.png"
    assert not heap.exists()


def test_a_quarantine_holds_images_of_one_folder(heap, tmp_path):
    quarantine(tmp_path / "q", [(heap / "a/1.png", "copy")], heap)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.png").write_text("x")
    with pytest.raises(UsageError):
        quarantine(tmp_path / "q", [(tmp_path / "other" / "x.png", "copy")], tmp_path / "other")
    assert (tmp_path / "other" / "x.png").exists()


def test_files_that_a_table_labels_are_not_moved(prolip, textures, tmp_path):
    train = textures / "train"
    (train / "cracked" / "broken.png").unlink()
    rows = [f"{path.relative_to(train).as_posix()},{path.parent.name} kind" for path in train.rglob("*.png")]
    (train / "metadata.csv").write_text("file_name,label\n" + "\n".join(rows) + "\n")
    code, _, err = prolip("check", train, "--move", tmp_path / "quarantine")
    assert code == 2
    assert "--out" in err
    assert not (tmp_path / "quarantine").exists()


def test_wrong_use_is_told(prolip, textures, tmp_path):
    assert prolip("check")[0] == 2
    assert prolip("check", textures, "--undo", tmp_path)[0] == 2
    code, _, err = prolip("check", textures, "--only", "copies")
    assert code == 2
    assert "did you mean 'copy'" in err


def test_a_picture_unlike_every_class_lies_below_the_fence():
    rng = np.random.default_rng(0)
    centres = np.eye(4, 30)
    y = np.repeat(np.arange(4), 20)
    x = centres[y] + rng.normal(0, 0.05, (80, 30))
    x[7] = np.eye(30)[29]
    scores, fence = outlier_scores(Task(x, y, rng.normal(size=(4, 30))))
    assert scores.argmin() == 7
    assert np.flatnonzero(scores < fence).tolist() == [7]
