"""Open SQLite files, which may come from a stranger.

A file is used only if its tables are exactly those of the given schema: a generated column, a view or a
trigger of somebody else would run by itself. A rollback journal beside it that names a further file is
refused before SQLite sees it, because SQLite deletes that further file.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError, MissingFileError
from prolip.io.reading import ReadError

TIMEOUT = 20.0  # seconds to wait for another process that is writing
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


def open_database(path: Path, schema: str, read_only: bool = False) -> sqlite3.Connection:
    """Open a database that this schema made; unless `read_only`, a new one is made where there is none.

    `schema` is a script of CREATE statements and of `PRAGMA user_version`. The connection may be used by any
    thread, one at a time. A file with other tables is an `InputError`; whatever the operating system refuses
    stays a `sqlite3.OperationalError`.
    """
    path = path.expanduser().resolve()
    if not read_only:
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        raise MissingFileError(f"{path} does not exist")
    journal = path.with_name(f"{path.name}-journal")
    if journal.is_file() and journal.read_bytes().endswith(_JOURNAL_MAGIC):
        raise InputError(f"{journal} names another file, which SQLite would delete: remove the journal")
    place = f"{path.as_uri()}?mode={'ro' if read_only else 'rwc'}"
    database = sqlite3.connect(place, timeout=TIMEOUT, uri=True, check_same_thread=False)
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        if not read_only:
            _create(database, schema)
        with closing(sqlite3.connect(":memory:")) as expected:
            expected.executescript(schema)
            if _tables(database) != _tables(expected):
                raise InputError(f"{path} was not written by this version of prolip: name another file")
    except BaseException as error:
        database.close()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            raise ReadError(path, f"it is damaged, or not a SQLite file ({error})") from error
        raise
    return database


def _create(database: sqlite3.Connection, schema: str) -> None:
    """Make the tables of a new file in one transaction, so that an interruption leaves none or all."""
    database.execute("PRAGMA synchronous = NORMAL")
    if _tables(database)[1]:
        return
    database.execute("BEGIN IMMEDIATE")
    with database:
        if not _tables(database)[1]:
            for statement in filter(str.strip, schema.split(";")):
                database.execute(statement)
    with suppress(sqlite3.OperationalError):  # a disk without shared memory, or another process is at it
        database.execute("PRAGMA journal_mode = WAL")


def _tables(database: sqlite3.Connection) -> tuple[int, list[Any]]:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    return version, database.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
