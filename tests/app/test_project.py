"""A project on disk: changes are values, written before they are acknowledged, undone in order, read back."""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prolip.app import edits
from prolip.app.project import DATABASE, Project, labelled_images
from prolip.app.state import Change, ClassRow, ImageRow, State
from prolip.core import InputError, UsageError

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
KILLS = 8


def after(state, changes):
    """The state after changes, each a value; `state` stays as it is."""
    state = state.copy()
    for change in changes:
        state.apply(change)
    return state


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


def test_removing_a_class_keeps_its_images():
    state = two_classes()
    removed = after(state, [edits.remove_class(state, "1")])
    assert list(removed.classes) == ["2"]
    assert removed.members(None) == [A, B, C]


def test_an_id_is_never_given_twice():
    state = two_classes()
    state = after(state, [edits.remove_class(state, "2")])
    assert not {"1", "2"} & set(edits.add_class(state, "dog").classes)


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
        (lambda s: edits.edit_class(s, "9", name="cow"), edits.RemovedElsewhereError),
        (lambda s: edits.label_images(s, ["f" * 64], "1"), edits.RemovedElsewhereError),
    ],
)
def test_what_cannot_be_done_is_refused(edit, error):
    with pytest.raises(error):
        edit(two_classes())


def test_names_are_one_line_of_text():
    change = edits.add_class(State(), "<b>\u202ecat\n\x00")
    assert change.classes["1"].name == "<b> cat"


names = st.sampled_from(["cat", "dog", "cow"])
rows = st.none() | st.builds(ImageRow, st.text("aé", max_size=3), st.sampled_from([None, "1"]), st.booleans())
changes = st.builds(
    Change,
    st.just("a test"),
    st.dictionaries(st.sampled_from(["1", "2"]), st.none() | st.builds(ClassRow, names)),
    st.dictionaries(st.sampled_from([A, B, C]), rows),
    st.sampled_from(["", "drop"]),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(changes.filter(len), min_size=1, max_size=6))
def test_undo_restores_every_state_and_the_disk_has_it(changes):
    with tempfile.TemporaryDirectory() as place:
        with Project.open(Path(place) / "p") as project:
            states = [(State(), None)]
            for change in changes:
                project.commit(lambda _, change=change: change)
                if change.group and states[-1][1] == change.group:
                    states.pop()
                states.append((project.state, change.group))
            assert project.state == after(State(), changes)
        with Project.open(Path(place) / "p") as project:
            for state, _ in reversed(states):
                now = project.state
                assert (now.classes, now.images) == (state.classes, state.images)
                project.undo()
            assert not project.can_undo


def add(project, content=b"content", label=None, group=""):
    image = hashlib.sha256(content).hexdigest()
    project.add_image(image, content, b"small", name="x.jpg", label=label, group=group)
    return image


def test_one_process_at_a_time(tmp_path):
    place = tmp_path / "p"
    with Project.open(place), pytest.raises(UsageError), Project.open(place):
        pass


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(UsageError), Project.open(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


def test_a_model_that_is_named_is_recorded(tmp_path):
    assert Project.base_model(tmp_path / "p") == "offline"
    for model, expected in ((None, "offline"), ("hf:mine", "hf:mine"), (None, "hf:mine")):
        with Project.open(tmp_path / "p", model):
            pass
        assert Project.base_model(tmp_path / "p") == expected


def files_of(folder):
    return {
        path.name
        for part in ("images", "thumbnails")
        for path in (folder / part).rglob("*")
        if path.is_file()
    }


def test_images_that_undo_cannot_restore_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.app.project.UNDO_STEPS", 3)
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


def test_what_another_program_has_open_can_be_read(tmp_path):
    with Project.open(tmp_path / "p") as project:
        project.commit(lambda s: edits.add_class(s, "cat"))
        assert Project.read(tmp_path / "p").classes == project.state.classes


def test_a_project_that_was_killed_while_it_was_made_opens(tmp_path):
    (tmp_path / "p").mkdir()
    for name in ("project.lock", DATABASE):
        (tmp_path / "p" / name).touch()
        assert Project.base_model(tmp_path / "p") == "offline"
        with Project.open(tmp_path / "p") as project:
            assert project.revision == 0
        (tmp_path / "p" / DATABASE).unlink()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
def test_a_killed_program_loses_nothing_that_it_acknowledged(tmp_path):
    script = Path(__file__).with_name("kill_project.py")
    command = [sys.executable, str(script), "--kills", str(KILLS)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert run.returncode == 0, run.stderr
    assert f"'kills': {KILLS}" in run.stdout


def test_labelled_images_are_those_to_train_on_or_to_test_with(tmp_path):
    folder = tmp_path / "p"
    with Project.open(folder) as project:
        project.commit(lambda s: edits.add_class(s, "cat"))
        for image, label, test in ((A, "1", False), (B, "1", True), (C, None, False)):
            row = (image, f"{image[0]}.jpg", label, "", test)
            project.commit(lambda s, row=row: edits.add_image(s, *row))
        project.commit(lambda s: edits.accept_predictions(s, [C], "1"))  # which nobody confirmed
    assert labelled_images(folder) == {"cat": [folder / "images" / "aa" / A]}
    assert labelled_images(folder, test=True) == {"cat": [folder / "images" / "bb" / B]}
