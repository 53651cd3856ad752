import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from prolip.core.errors import InputError, MissingFileError
from prolip.io.reading import ReadError
from prolip.io.sqlite import open_database

SCHEMA = """
CREATE TABLE things (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE others (number INTEGER);
PRAGMA user_version = 3;
"""


def write_rows(path, *names):
    database = open_database(path, SCHEMA)
    with database:
        database.executemany("INSERT INTO things VALUES (?, x'00')", [(name,) for name in names])
    database.close()


def names_in(path, read_only=True):
    database = open_database(path, SCHEMA, read_only)
    names = [name for (name,) in database.execute("SELECT name FROM things ORDER BY name")]
    database.close()
    return names


def test_rows_come_back_and_a_log_is_written_ahead(tmp_path):
    path = tmp_path / "new folder" / "a?b#c.sqlite"
    write_rows(path, "b", "a")
    write_rows(path, "c")
    assert names_in(path) == ["a", "b", "c"]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_reading_needs_a_file_and_changes_nothing(tmp_path):
    with pytest.raises(MissingFileError):
        open_database(tmp_path / "none.sqlite", SCHEMA, read_only=True)
    write_rows(tmp_path / "a.sqlite", "a")
    before = (tmp_path / "a.sqlite").read_bytes()
    database = open_database(tmp_path / "a.sqlite", SCHEMA, read_only=True)
    with pytest.raises(sqlite3.OperationalError):
        database.execute("DELETE FROM things")
    database.close()
    assert (tmp_path / "a.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE things ADD COLUMN more AS (zeroblob(1000000000))",
        "CREATE VIEW v AS SELECT 1",
        "PRAGMA user_version = 4",
        "DROP TABLE others",
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_other_tables_are_refused_and_left_alone(tmp_path, change, read_only):
    path = tmp_path / "a.sqlite"
    write_rows(path, "a")
    with sqlite3.connect(path) as database:
        database.execute(change)
    database.close()
    before = path.read_bytes()
    with pytest.raises(InputError):
        open_database(path, SCHEMA, read_only)
    assert path.read_bytes() == before


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.sqlite").write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(ReadError):
        open_database(tmp_path / "a.sqlite", SCHEMA)


def hot_journal(path: Path, superior: Path) -> bytes:
    """Return a journal that restores the first page of a database and names a super-journal."""
    page = path.read_bytes()[:4096]
    checksum = sum(page[i] for i in range(4096 - 200, 0, -200)) & 0xFFFFFFFF
    header = bytes.fromhex("d9d505f920a163d7") + b"".join(
        number.to_bytes(4, "big") for number in (1, 0, path.stat().st_size // 4096, 512, 4096)
    )
    journal = header.ljust(512, b"\0") + (1).to_bytes(4, "big") + page + checksum.to_bytes(4, "big")
    name = os.fsencode(superior)
    journal += (0x40000000 // 4096 + 1).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    return journal + sum(name).to_bytes(4, "big") + bytes.fromhex("d9d505f920a163d7")


def test_a_journal_cannot_delete_another_file(tmp_path):
    precious, path = tmp_path / "precious.txt", tmp_path / "a.sqlite"
    precious.write_text("precious")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(SCHEMA)
    Path(f"{path}-journal").write_bytes(hot_journal(path, precious))
    (tmp_path / "link.sqlite").symlink_to(path)
    for place, read_only in ((path, True), (path, False), (tmp_path / "link.sqlite", False)):
        with pytest.raises(InputError, match="journal"):
            open_database(place, SCHEMA, read_only)
    assert precious.read_text() == "precious"
    with closing(sqlite3.connect(path)) as database:  # SQLite alone does what the journal says
        database.execute("SELECT * FROM things").fetchall()
    assert not precious.exists()


WRITER = """
import sys
from pathlib import Path
from prolip.io.sqlite import open_database
database = open_database(Path(sys.argv[1]), sys.argv[2])
for number in range(20):
    with database:
        database.execute("INSERT INTO things VALUES (?, x'00')", (f"{sys.argv[3]} {number}",))
database.close()
"""


def test_processes_may_make_and_write_one_file_at_the_same_time(tmp_path):
    path = tmp_path / "a.sqlite"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), SCHEMA, str(number)])
        for number in range(4)
    ]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert len(names_in(path)) == 80
