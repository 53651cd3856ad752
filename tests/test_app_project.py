"""A project on disk: changes are values, kept before they are told, undone in order, and read back whole."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prolip.app import edits
from prolip.app.project import Project
from prolip.app.state import Change, ClassRow, ImageRow, State
from prolip.core import InputError, UsageError

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def made(*steps):
    """The state after edits, each a function of a state."""
    state = State()
    for step in steps:
        state = state.after([step(state)])
    return state


def two_classes():
    return made(
        lambda s: edits.add_class(s, "cat"),
        lambda s: edits.add_class(s, "dog"),
        lambda s: edits.add_image(s, A, "a.jpg", "1"),
        lambda s: edits.add_image(s, B, "b.jpg", "1"),
        lambda s: edits.add_image(s, C, "c.jpg", None),
    )


def test_merging_and_removing_keep_every_picture():
    state = two_classes()
    merged = state.after([edits.merge_classes(state, "1", "2")])
    assert list(merged.classes) == ["2"]
    assert merged.members("2") == [A, B]
    removed = merged.after([edits.remove_class(merged, "2")])
    assert removed.members(None) == [A, B, C]


def test_an_id_is_never_given_twice():
    state = two_classes()
    state = state.after([edits.remove_class(state, "2")])
    assert list(edits.add_class(state, "dog").classes) == ["3"]


def test_a_picture_that_is_there_moves_to_where_it_was_dropped():
    state = two_classes()
    assert edits.add_image(state, A, "again.jpg", "2").images[A].label == "2"
    assert not edits.add_image(state, A, "again.jpg", "1")
    assert not edits.add_image(state, A, "again.jpg", None), "a drop without a class takes no label away"


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (lambda s: edits.add_class(s, "  "), "at least one letter"),
        (lambda s: edits.add_class(s, "x" * 101), "100 characters"),
        (lambda s: edits.add_class(s, "cat"), "both read"),
        (lambda s: edits.edit_class(s, "2", name="cat"), "both read"),
        (lambda s: edits.edit_class(s, "9", name="cow"), "no longer there"),
        (lambda s: edits.label_images(s, ["f" * 64], "1"), "no longer there"),
        (lambda s: edits.merge_classes(s, "1", "1"), "into itself"),
    ],
)
def test_what_cannot_be_done_is_refused(edit, error):
    with pytest.raises(Exception, match=error):
        edit(two_classes())


def test_names_are_one_line_of_text():
    change = edits.add_class(State(), "<b>\u202ecat\n\x00")
    assert change.classes["1"].name == "<b> cat"


names = st.sampled_from(["cat", "dog", "cow"])
rows = st.none() | st.builds(ImageRow, st.text(max_size=3), st.sampled_from([None, "1"]), st.booleans())
changes = st.builds(
    Change,
    st.just("a test"),
    st.dictionaries(st.sampled_from(["1", "2"]), st.none() | st.builds(ClassRow, names)),
    st.dictionaries(st.sampled_from([A, B, C]), rows),
)


@given(st.lists(changes, max_size=6), changes)
def test_an_inverse_undoes_and_json_keeps_all(before, change):
    state = State().after(before)
    after = state.after([change])
    back = after.after([state.inverse(change)])
    assert (back.classes, back.images) == (state.classes, state.images)
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
def test_a_foreign_journal_is_refused(line):
    with pytest.raises(InputError):
        Change.from_json(line)


def test_a_project_comes_back_as_it_was(tmp_path):
    with Project.open(tmp_path / "p") as project:
        project.commit(lambda s: edits.add_class(s, "cat"))
        image = project.keep_image(b"content", b"small")
        project.commit(lambda s: edits.add_image(s, image, "x.jpg", "1"))
        state = project.state
    with Project.open(tmp_path / "p") as again:
        assert again.state == state
        assert again.revision == 2
        assert again.image(image).read_bytes() == b"content"
        assert again.undo().about == "added pictures"
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
    with Project.open(place), pytest.raises(UsageError, match="is being written"), Project.open(place):
        pass


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(UsageError, match="holds other files"), Project.open(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


@pytest.mark.parametrize("wrong", ["ofline", "arrays"])
def test_a_model_that_cannot_be_loaded_is_not_kept(tmp_path, prolip, wrong):
    for module in ("starlette", "uvicorn", "python_multipart"):
        pytest.importorskip(module, reason="the extra `app` is not installed")
    with Project.open(tmp_path / "old"):
        pass
    for name in ("old", "new"):
        code, _, told = prolip("app", tmp_path / name, "--model", wrong, "--no-browser", "--port", 0)
        assert code != 0, told
    assert not (tmp_path / "new").exists()
    assert Project.model_of(tmp_path / "old") == "offline"


def test_a_model_that_is_named_is_kept(tmp_path):
    for named, expected in ((None, "offline"), ("hf:mine", "hf:mine"), (None, "hf:mine")):
        with Project.open(tmp_path / "p", named) as project:
            assert project.model == Project.model_of(tmp_path / "p") == expected


def test_half_a_line_is_dropped_and_a_damaged_one_named(tmp_path):
    with Project.open(tmp_path / "p") as project:
        project.commit(lambda s: edits.add_class(s, "cat"))
    journal = tmp_path / "p" / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[: len(whole) // 2])
    with Project.open(tmp_path / "p") as project:
        assert project.revision == 1
    journal.write_bytes(b"nonsense\n" + whole)
    with pytest.raises(InputError, match="line 1"), Project.open(tmp_path / "p"):
        pass


def test_a_killed_writer_loses_nothing_that_it_told(tmp_path):
    """Kill -9 between any two steps; every line that was printed is there, and the next open is clean."""
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from prolip.app import edits
        from prolip.app.project import Project
        with Project.open(Path(sys.argv[1])) as project:
            while True:
                image = project.keep_image(project.revision.to_bytes(4, "big"), b"small")
                project.commit(lambda s: edits.add_image(s, image, "x", None))
                print(image, flush=True)
    """)
    told = []
    for moment in (1, 3, 17):
        run = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "p")], stdout=subprocess.PIPE, text=True
        )
        for _ in range(moment):
            told.append(run.stdout.readline().strip())
        os.kill(run.pid, signal.SIGKILL)
        told += run.stdout.read().split()
        run.wait()
        run.stdout.close()
    with Project.open(tmp_path / "p") as project:
        assert set(told) <= set(project.state.images)
        assert all(project.image(image).is_file() for image in project.state.images)
