"""Folders and tables of images, and every way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from prolip.core.errors import InputError, UnknownNameError, UsageError
from prolip.data import ImageSet, list_images, read_images
from prolip.data.folders import MissingSplitError
from prolip.data.imageset import clean_name


def fill(root: Path, *names: str) -> Path:
    """Empty files: reading a folder looks at names, never at contents."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def names_of(images: ImageSet) -> list[str]:
    return [path.name for path in images.images]


# --- a folder per class


def test_a_folder_per_class(tmp_path):
    fill(tmp_path, "dog/2.JPG", "dog/1.png", "cat/9.webp", "Main_coon/x.jpeg")
    images = read_images(tmp_path)
    assert images.classes == ["Main_coon", "cat", "dog"]
    assert names_of(images) == ["x.jpeg", "9.webp", "1.png", "2.JPG"]
    assert images.labels == [0, 1, 2, 2]
    assert images.names == ("Main coon", "cat", "dog")
    assert images.counts() == {"Main_coon": 1, "cat": 1, "dog": 2}
    assert images.root == tmp_path
    assert images.split is None


def test_hidden_files_and_folders_and_what_is_no_image_are_passed_over(tmp_path):
    fill(tmp_path, "cat/1.jpg", "cat/._1.jpg", "cat/notes.txt", "dog/2.jpg", "dog/.thumbs/3.jpg", "README.md")
    fill(tmp_path, ".git/4.jpg", "__MACOSX/cat/5.jpg")
    images = read_images(tmp_path)
    assert names_of(images) == ["1.jpg", "2.jpg"]


# --- groups


def test_folders_in_class_folders_are_groups(tmp_path):
    fill(tmp_path, "cat/day 1/1.jpg", "cat/day 1/2.jpg", "cat/3.jpg", "cat/4.jpg", "dog/day 1/5.jpg")
    images = read_images(tmp_path, group_by="parent")
    groups = dict(zip(names_of(images), images.groups, strict=True))
    assert groups["1.jpg"] == groups["2.jpg"] == groups["5.jpg"]  # the same day
    assert len(set(groups.values())) == 3  # and two photos that are alone
    assert images.subset([4, 0]).groups == (groups["5.jpg"], groups[names_of(images)[0]])
    assert read_images(tmp_path).groups is None
    with pytest.raises(UsageError):
        read_images(tmp_path, group_by="animal")


def test_a_column_of_groups(tmp_path):
    fill(tmp_path, "x/1.jpg", "x/2.jpg", "y/3.jpg", "y/4.jpg")
    text = "file_name,label,Group,day\nx/1.jpg,a,anna,1\nx/2.jpg,b,anna,2\ny/3.jpg,a,,2\ny/4.jpg,b,,\n"
    table(tmp_path, text)
    groups = read_images(tmp_path).groups
    assert groups[:2] == ("anna", "anna")
    assert len(set(groups)) == 3  # an empty cell is a group of its own
    assert read_images(tmp_path, group_by="Day").groups[:3] == ("1", "2", "2")
    groups = read_images(tmp_path, group_by="parent").groups
    assert [groups.index(group) for group in groups] == [0, 0, 2, 2]
    with pytest.raises(InputError, match="no column"):
        read_images(tmp_path, group_by="animal")
    with pytest.raises(InputError):
        ImageSet(["a", "b"], [0, 1], ["a", "b"], groups=("one",))


# --- train, val and test


@pytest.mark.parametrize(
    ("split", "name"), [(None, "1.jpg"), ("train", "1.jpg"), ("val", "2.jpg"), ("test", "3.jpg")]
)
def test_splits(tmp_path, split, name):
    fill(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "Validation/a/2.jpg", "Validation/b/2.jpg")
    fill(tmp_path, "test/a/3.jpg", "test/b/3.jpg")
    images = read_images(tmp_path, split)
    assert names_of(images) == [name, name]
    assert images.split == (split or "train")


def test_a_source_without_parts_is_read_whole(tmp_path):
    fill(tmp_path, "a/1.jpg", "b/2.jpg")
    assert names_of(read_images(tmp_path, "test")) == ["1.jpg", "2.jpg"]
    assert read_images(tmp_path, "test").split is None


# --- what is refused


@pytest.mark.parametrize(
    ("names", "source", "split", "error"),
    [
        ((), "nowhere", None, "does not exist"),
        (("cat.jpg",), "cat.jpg", None, "is a file"),
        ((), "", None, "no images"),
        (("cat/1.jpg",), "", None, "only 1 class"),
        (("1.jpg", "2.jpg"), "", None, "directly in"),
        (("cat/1.jpg", "___/2.jpg"), "", None, "underscores"),
        (("sea_lion/1.jpg", "sea lion/2.jpg"), "", None, "both read"),
        (("val/a/1.jpg", "valid/a/1.jpg"), "", "val", "keep one"),
        (("train/a/1.jpg", "train/b/1.jpg", "val/a/2.jpg"), "", "test", "no test split"),
    ],
)
def test_what_is_no_set_of_images(tmp_path, names, source, split, error):
    with pytest.raises(InputError, match=error):
        read_images(fill(tmp_path, *names) / source, split)


def test_one_class_is_enough_for_an_evaluation_and_splits_have_names(tmp_path):
    assert len(read_images(fill(tmp_path, "cat/1.jpg"), min_classes=1)) == 1
    with pytest.raises(UnknownNameError):
        read_images(tmp_path, "trian")


@pytest.mark.parametrize("skipped", ["dog/notes.txt", "dog/.hidden.jpg", "stray.jpg"])
def test_folders_without_images_and_images_beside_folders_are_skipped(tmp_path, skipped):
    fill(tmp_path, "cat/1.jpg", "cow/1.jpg", skipped)
    with pytest.warns(UserWarning, match=skipped.split("/")[0]):
        images = read_images(tmp_path)
    assert images.counts() == {"cat": 1, "cow": 1}


def test_folders_in_a_class_belong_to_it(tmp_path):
    fill(tmp_path, "cat/1.jpg", "dog/3.jpg", "dog/hounds/2.jpg", "dog/hounds/small/train/1.jpg")
    images = read_images(tmp_path)
    assert images.classes == ["cat", "dog"]
    assert (names_of(images), images.labels) == (["1.jpg", "3.jpg", "2.jpg", "1.jpg"], [0, 1, 1, 1])


def test_an_image_set_is_consistent():
    assert clean_name("  Maine_Coon\t cat ") == "Maine Coon cat"
    for images, labels, classes in (
        (["a", "b"], [0], ["x"]),
        (["a"], [0], ["x", "x "]),
    ):
        with pytest.raises(InputError):
            ImageSet(images, labels, classes)


# --- tables


def table(root: Path, text: str, name: str = "metadata.csv") -> Path:
    (root / name).write_text(text, encoding="utf-8")
    return root


def test_a_csv_table(tmp_path):
    fill(tmp_path, "img/1.jpg", "img/2.jpg", "3.jpg")
    table(tmp_path, "\ufefffile_name,label\nimg/1.jpg,dog\nimg/2.jpg,sea_lion\n3.jpg,dog\n")
    images = read_images(tmp_path)
    assert (names_of(images), images.classes) == (["1.jpg", "2.jpg", "3.jpg"], ["dog", "sea_lion"])
    assert images.labels == [0, 1, 0]
    assert read_images(tmp_path / "metadata.csv") == images


def test_a_table_with_a_split_column(tmp_path):
    fill(tmp_path, "1.jpg", "2.jpg", "3.jpg", "4.jpg")
    table(
        tmp_path,
        "file_name,label,split\n1.jpg,a,train\n2.jpg,b,train\n3.jpg,a,validation\n4.jpg,b,validation\n",
    )
    assert names_of(read_images(tmp_path)) == ["1.jpg", "2.jpg"]
    assert names_of(read_images(tmp_path, "val")) == ["3.jpg", "4.jpg"]
    with pytest.raises(MissingSplitError):
        read_images(tmp_path, "test")


def test_a_table_inside_a_split(tmp_path):
    fill(tmp_path, "train/1.jpg", "train/2.jpg")
    table(tmp_path / "train", "file_name,label\n1.jpg,a\n2.jpg,b\n")
    images = read_images(tmp_path)
    assert (images.split, images.classes) == ("train", ["a", "b"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file_name,caption\n1.jpg,nice\n", "no column of labels .* only file_name, caption"),
        ("name,breed\n1.jpg,cat\n", "no column of images"),
        ("file_name,label\n1.jpg,cat\n2.jpg,\n", ":3: the label is ''"),
        ("file_name,label\n1.jpg,cat\n2.jpg\n", ":3: the label is None"),
        ("file_name,label\n1.jpg,cat\nlost.jpg,dog\n", r":3: 'lost\.jpg' is not a file"),
        ("file_name,label,split\n1.jpg,cat,holdout\n", "no train split, only holdout"),
        ("file_name,label\n1.jpg,cat\n2.jpg,cat\n", "only 1 class"),
        ("file_name,label\n", "it has no rows"),
        ("", "it has no rows"),
        ('file_name,label\n"1.jpg"x,cat\n', ":2:"),
        ("file_name,label\n1.jpg,cat\n2.jpg,dog,what\n", ":3: it has more cells than the header"),
        (f"file_name,label\n{'x' * 300}.jpg,cat\n", "is not a file"),
    ],
)
def test_wrong_tables(tmp_path, text, message):
    root = tmp_path / "inner"
    fill(tmp_path, "secret.jpg", "inner/1.jpg", "inner/2.jpg")
    with pytest.raises(InputError, match=message) as caught:
        read_images(table(root, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"file_name": "1.jpg", "label": "a"}\n{oops\n', ":2: "),
        ('["1.jpg", "a"]\n', ":1: "),
        ("[" * 100_000, ":1: "),
        ('{"file_name": "1.jpg", "label": null}\n', "label is None"),
        ('{"file_name": "1.jpg", "label": ["a"]}\n', r"label is \['a'\]"),
    ],
)
def test_wrong_json_tables(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_images(table(fill(tmp_path, "1.jpg"), text, "metadata.jsonl"))


# --- images to predict


def test_files_and_folders_to_predict(tmp_path):
    fill(tmp_path, "b/2.jpg", "b/deep/1.png", "b/notes.txt", "a.jpg", "upload", "empty/notes.txt")
    listed = list_images([tmp_path / "b", str(tmp_path / "a.jpg"), tmp_path / "upload"])
    assert listed == [tmp_path / name for name in ("b/2.jpg", "b/deep/1.png", "a.jpg", "upload")]
    assert list_images(tmp_path / "a.jpg") == [tmp_path / "a.jpg"]
    for wrong in (tmp_path / "b" / "notes.txt", tmp_path / "empty", [tmp_path / "gone.jpg"], []):
        with pytest.raises(InputError):
            list_images(wrong)


def test_a_folder_that_links_to_itself_ends(tmp_path):
    fill(tmp_path, "a/1.jpg")
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "2.jpg").symlink_to("missing.jpg")
    assert [path.name for path in list_images(tmp_path)] == ["1.jpg", "2.jpg"]


@pytest.mark.parametrize("name", ["x" * 300, "~nosuchuser/x", "a\0b"])
def test_names_that_no_file_can_have(name):
    for read in (list_images, read_images):
        with pytest.raises(InputError):
            read(name)


@pytest.mark.parametrize(
    "url", ["https://example.org/a.jpg", "s3://bucket/photos", Path("https://example.org/x")]
)
def test_a_url_is_refused(url):
    for read in (list_images, read_images):
        with pytest.raises(UsageError):
            read(url)
