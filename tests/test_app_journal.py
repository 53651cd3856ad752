"""The journal of a project: whatever moment the program stops at, every acknowledged change is there."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prolip.app import edits, history, journal
from prolip.app.project import Project
from prolip.app.state import Change, ImageRow, State
from prolip.core import ProlipError

IDS = [f"{i:064x}" for i in range(20_000)]
KILLS = int(os.environ.get("JOURNAL_KILLS", "8"))


def commit(project, change):
    return project.commit(lambda _: change)


def rows(count, name="x", label=None):
    """A change of so many pictures."""
    return Change("", images={image: ImageRow(name, label) for image in IDS[:count]})


def lines(folder):
    """The name and the content of the journal that counts."""
    (path,) = folder.glob("journal-*.jsonl")
    return path, path.read_bytes()


def test_a_journal_cut_at_any_byte_has_all_whole_lines(tmp_path):
    states = [State()]
    with Project.open(tmp_path / "p") as project:
        for name in ("cat", "dog", "café"):
            project.commit(lambda s, name=name: edits.add_class(s, name))
            states.append(project.state)
    path, content = lines(tmp_path / "p")
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        with Project.open(tmp_path / "p") as project:
            assert project.state == states[content[:size].count(b"\n")]
        if size and path.exists():
            assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("count", [1, 40, 8_000, 20_000])
@pytest.mark.parametrize("length", [1, 400])
def test_a_cut_line_of_any_length_is_dropped(tmp_path, monkeypatch, count, length):
    monkeypatch.setattr(journal, "COMPACT_AT", 1 << 40)
    with Project.open(tmp_path / "p") as project:
        commit(project, rows(2))
        commit(project, rows(count, "x" * length))
    path, content = lines(tmp_path / "p")
    start = content.index(b"\n") + 1
    last = len(content) - start  # bytes of the last line, up to 10 MB
    for part in (0, 1, last // 2, max(0, last - (1 << 20) - 7), last - 1):
        path.write_bytes(content[: start + part])
        with Project.open(tmp_path / "p") as project:
            assert project.revision == 1
            commit(project, rows(3))
        with Project.open(tmp_path / "p") as project:
            assert project.revision == 2
            assert len(project.state.images) == 3
    path.write_bytes(content)
    with Project.open(tmp_path / "p") as project:
        assert project.revision == 2
        assert len(project.state.images) == max(2, count)


def test_zeros_that_a_power_cut_leaves_in_the_last_line_are_dropped(tmp_path):
    with Project.open(tmp_path / "p") as project:
        commit(project, rows(2))
    path, content = lines(tmp_path / "p")
    path.write_bytes(content + content[:20] + bytes(4096) + content[-20:])
    with Project.open(tmp_path / "p") as project:
        assert project.revision == 1
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", [b"nonsense\n", b"[]\n", b"\xff\n", b"\0\n", b"{}\n", b"[" * 9999 + b"\n"])
def test_a_damaged_line_is_named_and_nothing_is_changed(tmp_path, damage):
    with Project.open(tmp_path / "p") as project:
        commit(project, rows(2))
    path, content = lines(tmp_path / "p")
    path.write_bytes(content + damage + content + b"{half a li")
    with pytest.raises(journal.DamagedProject) as error, Project.open(tmp_path / "p"):
        pass
    assert (error.value.path, error.value.line) == (path, 2)
    assert path.read_bytes() == content + damage + content + b"{half a li"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
def test_a_killed_program_loses_nothing_that_it_acknowledged(tmp_path):
    """More kills: JOURNAL_KILLS=1000 pytest tests/test_app_journal.py -k killed --timeout 7200."""
    script = Path(__file__).with_name("kill_journal.py")
    command = [sys.executable, str(script), "--kills", str(KILLS)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert run.returncode == 0, run.stderr
    assert f"'kills': {KILLS}" in run.stdout


def test_a_program_killed_between_two_images_has_their_files(tmp_path):
    program = (
        "import sys; from pathlib import Path; from prolip.app.project import Project\n"
        "with Project.open(Path(sys.argv[1])) as project:\n"
        "    while True:\n"
        "        data = project.revision.to_bytes(4, 'big')\n"
        "        print(project.add_image(data, b'small', 'x')[0], flush=True)\n"
    )
    acknowledged = []
    for moment in (1, 17):
        command = [sys.executable, "-c", program, str(tmp_path / "p")]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        acknowledged += [run.stdout.readline().strip() for _ in range(moment)]
        run.send_signal(signal.SIGKILL)
        acknowledged += run.stdout.read().split()
        run.wait()
        run.stdout.close()
    with Project.open(tmp_path / "p") as project:
        assert set(acknowledged) <= set(project.state.images)
        assert all(project.image(image).is_file() for image in project.state.images)


@pytest.fixture
def compacting(monkeypatch):
    """Journals are compacted as soon as they are longer than their snapshot."""
    monkeypatch.setattr(journal, "COMPACT_AT", 0)


def test_a_journal_is_compacted_and_undo_goes_on(tmp_path, compacting):
    rng, states = random.Random(0), []
    with Project.open(tmp_path / "p") as project:
        for number in range(60):
            label = rng.choice([None, "1", "2"])
            images = {image: ImageRow("x", label) for image in rng.sample(IDS[:9], 3)}
            commit(project, Change(f"number {number}", images=images))
            states.append(project.state)
    path, content = lines(tmp_path / "p")
    assert path.name != "journal-0.jsonl"
    assert content.count(b"\n") < 60
    with Project.open(tmp_path / "p") as project:
        assert project.revision == 60
        for state in reversed([State(), *states[:-1]]):
            assert project.can_undo
            project.undo()
            assert project.state.images == state.images
        assert not project.can_undo


def test_the_size_of_a_project_does_not_grow_with_its_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "COMPACT_AT", 100_000)
    monkeypatch.setattr(history, "UNDO_ROWS", 2000)
    with Project.open(tmp_path / "p") as project:
        for number in range(60):
            commit(project, rows(1000, label=str(number)))
            size = sum(path.stat().st_size for path in (tmp_path / "p").iterdir())
            assert size < 1_500_000
        assert len(project.state.images) == 1000
        project.undo()
        assert project.state.images[IDS[0]].label == "58"


class Stop(BaseException):
    """The end of the program, as a test sees it."""


@pytest.mark.parametrize(
    "moment", ["before the snapshot", "after the snapshot", "before the old journal goes"]
)
def test_compaction_may_stop_at_any_moment(tmp_path, monkeypatch, compacting, moment):
    write, remove = journal.write_bytes, journal.Journal._remove_others

    def stop(*arguments, **options):
        if moment == "after the snapshot":
            write(*arguments, **options)
        raise Stop

    with Project.open(tmp_path / "p") as project:
        commit(project, rows(3))
        state = None
        if moment == "before the old journal goes":
            monkeypatch.setattr(journal.Journal, "_remove_others", stop)
        else:
            monkeypatch.setattr(journal, "write_bytes", stop)
        for number in range(9):
            try:
                commit(project, rows(3, label=str(number)))
            except Stop:
                state = project.state
                break
        assert state is not None
    monkeypatch.setattr(journal, "write_bytes", write)
    monkeypatch.setattr(journal.Journal, "_remove_others", remove)
    with Project.open(tmp_path / "p") as project:
        assert project.state == state
        commit(project, rows(4))
    with Project.open(tmp_path / "p") as project:
        assert len(project.state.images) == 4


def test_a_full_disk_stops_compaction_and_no_change(tmp_path, monkeypatch, compacting):
    def full(path, content, durable):
        raise ProlipError("no space left on the disk")

    with Project.open(tmp_path / "p") as project:
        monkeypatch.setattr(journal, "write_bytes", full)
        for number in range(9):
            commit(project, rows(3, label=str(number)))
        state = project.state
    monkeypatch.undo()
    with Project.open(tmp_path / "p") as project:
        assert project.state == state
        assert project.revision == 9


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"revision": -1, "next_class": 1, "classes": {}}'])
def test_a_damaged_snapshot_is_named_and_nothing_is_changed(tmp_path, compacting, content):
    with Project.open(tmp_path / "p") as project:
        for number in range(5):
            commit(project, rows(3, label=str(number)))
    snapshot = tmp_path / "p" / "snapshot.json"
    snapshot.write_text(content)
    with pytest.raises(journal.DamagedProject) as error, Project.open(tmp_path / "p"):
        pass
    assert error.value.path == tmp_path / "p" / "snapshot.json"
    assert snapshot.read_text() == content


def test_a_journal_without_its_snapshot_is_not_taken_for_an_empty_project(tmp_path, compacting):
    with Project.open(tmp_path / "p") as project:
        for number in range(9):
            commit(project, rows(3, label=str(number)))
        assert project.undo()
    journals = [lines(tmp_path / "p")]
    assert journals[0][1]
    (tmp_path / "p" / "snapshot.json").unlink()
    with pytest.raises(journal.DamagedProject) as error, Project.open(tmp_path / "p"):
        pass
    assert error.value.path == tmp_path / "p" / "snapshot.json"
    assert [lines(tmp_path / "p")] == journals


def test_a_large_project_opens_quickly(tmp_path):
    """Twenty thousand pictures, ten thousand changes of one, and four of all of them at once."""
    with Project.open(tmp_path / "p"):
        pass
    changes = [Change("", images={image: ImageRow(f"{image[-5:]}.jpg")}, group="drop") for image in IDS]
    changes += [Change("", images={image: ImageRow("x", "1")}) for image in IDS[:10_000]]
    changes += [rows(20_000, label=str(number)) for number in range(4)]
    with (tmp_path / "p" / "journal-0.jsonl").open("wb") as file:
        file.writelines(journal.to_json(change.as_json()) + b"\n" for change in changes)
    started = time.process_time()
    with Project.open(tmp_path / "p") as project:
        assert time.process_time() - started < 3
        assert project.revision == len(changes)
        project.undo()
        assert {row.label for row in project.state.images.values()} == {"2"}


def test_all_that_is_written_is_json(tmp_path, compacting):
    with Project.open(tmp_path / "p") as project:
        for number in range(5):
            commit(project, rows(3, "café\u2028", str(number)))
    assert json.loads((tmp_path / "p" / "snapshot.json").read_text("utf-8"))["revision"] > 0
    assert all(json.loads(line) for line in lines(tmp_path / "p")[1].split(b"\n") if line)
