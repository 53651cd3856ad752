"""A project on disk: changes are values, written before they are acknowledged, undone in order, read back."""

import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kill_journal import after
from prolip.app import edits, history
from prolip.app.project import FORMAT, BaseModel, Project
from prolip.app.state import Change, ClassRow, ImageRow, State
from prolip.core import InputError, ProlipError, UsageError

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def made(*steps):
    """The state after edits, each a function of a state."""
    state = State()
    for step in steps:
        state = after(state, [step(state)])
    return state


def two_classes():
    return made(
        lambda s: edits.add_class(s, "cat"),
        lambda s: edits.add_class(s, "dog"),
        lambda s: edits.add_image(s, A, "a.jpg", "1"),
        lambda s: edits.add_image(s, B, "b.jpg", "1"),
        lambda s: edits.add_image(s, C, "c.jpg", None),
    )


def test_merging_and_removing_keep_every_image():
    state = two_classes()
    merged = after(state, [edits.merge_classes(state, "1", "2")])
    assert list(merged.classes) == ["2"]
    assert merged.members("2") == [A, B]
    removed = after(merged, [edits.remove_class(merged, "2")])
    assert removed.members(None) == [A, B, C]


def test_an_id_is_never_given_twice():
    state = two_classes()
    state = after(state, [edits.remove_class(state, "2")])
    assert list(edits.add_class(state, "dog").classes) == ["3"]


def test_a_known_image_moves_to_where_it_was_dropped():
    state = two_classes()
    assert edits.add_image(state, A, "again.jpg", "2").images[A].label == "2"
    assert not edits.add_image(state, A, "again.jpg", "1")
    assert not edits.add_image(state, A, "again.jpg", None), "a drop without a class takes no label away"


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (lambda s: edits.add_class(s, "  "), InputError),
        (lambda s: edits.add_class(s, "x" * 101), InputError),
        (lambda s: edits.add_class(s, "cat"), InputError),
        (lambda s: edits.edit_class(s, "2", name="cat"), InputError),
        (lambda s: edits.edit_class(s, "9", name="cow"), edits.RemovedElsewhere),
        (lambda s: edits.label_images(s, ["f" * 64], "1"), edits.RemovedElsewhere),
        (lambda s: edits.merge_classes(s, "1", "1"), InputError),
    ],
)
def test_what_cannot_be_done_is_refused(edit, error):
    with pytest.raises(error):
        edit(two_classes())


def test_names_are_one_line_of_text():
    change = edits.add_class(State(), "<b>\u202ecat\n\x00")
    assert change.classes["1"].name == "<b>cat"


names = st.sampled_from(["cat", "dog", "cow"])
rows = st.none() | st.builds(ImageRow, st.text(max_size=3), st.sampled_from([None, "1"]), st.booleans())
changes = st.builds(
    Change,
    st.just("a test"),
    st.dictionaries(st.sampled_from(["1", "2"]), st.none() | st.builds(ClassRow, names)),
    st.dictionaries(st.sampled_from([A, B, C]), rows),
)


@given(st.lists(changes, max_size=6), changes)
def test_undo_restores_the_state_and_json_keeps_all(before, change):
    made = history.History()
    for each in [*before, change]:
        made.apply(each)
    assert made.state() == after(State(), [*before, change])
    made.apply(made.undo[-1])
    back, expected = made.state(), after(State(), before)
    assert (back.classes, back.images) == (expected.classes, expected.images)
    assert Change.from_json(change.as_json()) == change


@pytest.mark.parametrize(
    "line",
    [
        [],
        {"about": "", "classes": {}, "images": {"../../etc/passwd": None}, "group": "", "undoes": False},
        {"about": "", "classes": {"0": None}, "images": {}, "group": "", "undoes": False},
        {"about": "", "classes": {"1": {"name": 3}}, "images": {}, "group": "", "undoes": False},
        {"about": "", "classes": {"1": {"name": "a", "more": 1}}, "images": {}, "group": "", "undoes": False},
    ],
)
def test_a_malformed_journal_is_refused(line):
    with pytest.raises(InputError):
        Change.from_json(line)


def add(project, content=b"content", label=None, group=""):
    return project.add_image(content, b"small", "x.jpg", label, group)[0]


def test_a_project_comes_back_as_it_was(tmp_path):
    with Project.open(tmp_path / "p") as project:
        project.commit(lambda s: edits.add_class(s, "cat"))
        image = add(project, label="1")
        state = project.state
    with Project.open(tmp_path / "p") as again:
        assert again.state == state
        assert again.revision == 2
        assert again.image(image).read_bytes() == b"content"
        assert again.undo().about == "added images"
        assert not again.state.images


def test_undo_takes_back_a_whole_drop_and_then_what_was_before(tmp_path):
    with Project.open(tmp_path / "p") as project:
        project.commit(lambda s: edits.add_class(s, "cat"))
        for image in (A, B, C):
            project.commit(lambda s, image=image: edits.add_image(s, image, "x", "1", "one drop"))
        project.commit(lambda s: edits.label_images(s, [A], None))
    with Project.open(tmp_path / "p") as project:  # what can be undone is read from the journal too
        project.undo()
        assert project.state.images[A].label == "1"
        project.undo()
        assert not project.state.images
        project.undo()
        assert not project.state.classes
        assert not project.undo()


def test_one_process_at_a_time(tmp_path):
    place = tmp_path / "p"
    with Project.open(place), pytest.raises(ProlipError), Project.open(place):
        pass


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(UsageError), Project.open(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


def test_the_name_is_that_of_the_folder_wherever_one_stands(tmp_path, monkeypatch):
    (tmp_path / "birds").mkdir()
    monkeypatch.chdir(tmp_path / "birds")
    with Project.open(Path()) as project:
        assert project.name == "birds"
        assert project.folder == tmp_path / "birds"


def test_a_model_that_is_named_is_recorded(tmp_path):
    mine = SimpleNamespace(name="hf:mine", fingerprint="f" * 16)
    assert Project.base_model(tmp_path / "p") == BaseModel("offline")
    for encoder, expected in ((None, "offline"), (mine, "hf:mine"), (None, "hf:mine")):
        with Project.open(tmp_path / "p", encoder) as project:
            assert project.model == expected
        assert Project.base_model(tmp_path / "p").name == expected
    assert Project.base_model(tmp_path / "p").fingerprint == "f" * 16


@pytest.mark.parametrize(
    "about", ["[]", "{", '{"format": 2}', '{"format": 2, "model": ""}', '{"format": 1, "model": "offline"}']
)
def test_a_malformed_project_file_is_refused(tmp_path, about):
    (tmp_path / "project.json").write_text(about)
    with pytest.raises(ProlipError), Project.open(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["project.json"]


@pytest.fixture
def made_project(tmp_path):
    """A closed project with two pictures, one of them removed."""
    with Project.open(tmp_path / "p") as project:
        add(project)
        image = add(project, b"other")
        project.commit(lambda s: edits.remove_images(s, [image]))
    (tmp_path / "p" / "features").mkdir()
    return tmp_path / "p"


def snapshot_of(folder):
    """Everything below a folder: what it is and what it holds."""
    return {
        path.relative_to(folder): path.readlink()
        if path.is_symlink()
        else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "name",
    ["journal-0.jsonl", "project.json", "images", "thumbnails", "features", "images/ab", "snapshot.json"],
)
def test_a_project_with_a_link_is_refused_and_nothing_changes(tmp_path, made_project, name):
    outside = tmp_path / "documents"
    outside.mkdir()
    (outside / "thesis").write_bytes(b"years of work, on one line")
    place = made_project / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(outside / "thesis" if place.suffix else outside)
    before = snapshot_of(tmp_path)
    with pytest.raises(InputError, match=re.escape(str(place))), Project.open(made_project):
        pass
    assert snapshot_of(tmp_path) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_a_project_is_refused(made_project):
    os.mkfifo(made_project / "images" / "pipe")
    with pytest.raises(InputError, match="special file"), Project.open(made_project):
        pass


def files_of(folder):
    return {
        path.name
        for part in ("images", "thumbnails")
        for path in (folder / part).rglob("*")
        if path.is_file()
    }


def test_images_that_undo_cannot_restore_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.app.history.UNDO_CHANGES", 3)
    place = tmp_path / "p"
    with Project.open(place) as project:
        first, second, taken_back = add(project), add(project, b"other"), add(project, b"third")
        project.undo()
        project.commit(lambda s: edits.remove_images(s, [second]))
        for name in ("cat", "dog"):
            project.commit(lambda s, name=name: edits.add_class(s, name))
    with Project.open(place) as project:  # removing it is the third last change
        assert files_of(place) == {name for image in (first, second) for name in (image, f"{image}.jpg")}
        project.commit(lambda s: edits.add_class(s, "cow"))
    with Project.open(place) as project:
        assert files_of(place) == {first, f"{first}.jpg"}
        assert add(project, b"third") == taken_back
        assert add(project, b"other") == second
    with Project.open(place) as project:
        assert set(project.state.images) == {first, second, taken_back}
        assert all(project.image(image).is_file() for image in project.state.images)


def test_an_image_being_added_is_not_deleted_by_compaction(tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.app.history.UNDO_CHANGES", 1)
    with Project.open(tmp_path / "p") as project:
        image = add(project)
        project.commit(lambda s: edits.remove_images(s, [image]))

        write = project.write_thumbnail

        def between(image, thumbnail):  # the picture is on disk again, and its row is not yet written
            monkeypatch.setattr(project, "write_thumbnail", write)
            monkeypatch.setattr("prolip.app.journal.Journal.is_long", True)
            for name in ("cat", "dog"):
                project.commit(lambda s, name=name: edits.add_class(s, name))

        monkeypatch.setattr(project, "write_thumbnail", between)
        add(project)
        assert project.image(image).read_bytes() == b"content"


def test_text_that_cannot_be_written_is_refused_as_it_is_read(tmp_path):
    half = "\ud800"
    whole = edits.add_class(State(), "cat").as_json()
    for change in (
        {**whole, "about": half},
        {**whole, "classes": {"1": {"name": half, "text": ""}}},
        {**whole, "images": {A: {"name": half, "label": None, "checked": False}}},
    ):
        with pytest.raises(InputError):
            Change.from_json(change)
    (tmp_path / "project.json").write_text(json.dumps({"format": FORMAT, "model": half}))
    with pytest.raises(InputError), Project.open(tmp_path):
        pass
