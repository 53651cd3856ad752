import os

import pytest

import pool_jobs
from prolip.core import ProlipError
from prolip.io.pool import open_pool


def test_jobs_run_in_processes_with_one_thread_each() -> None:
    before = os.environ.get("OMP_NUM_THREADS")
    with open_pool(2) as pool:
        assert sorted(pool.imap_unordered(pool_jobs.square, range(4))) == [(n * n, "1") for n in range(4)]
        with pytest.raises(KeyError):
            list(pool.imap_unordered(pool_jobs.fail, range(4)))
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_one_process_is_this_one() -> None:
    with open_pool(1) as pool:
        assert list(pool.imap_unordered(os.path.dirname, ["a/b"])) == ["a"]
        assert [*pool.imap_unordered(lambda job: job + 1, [1, 2])] == [2, 3]


def test_a_worker_that_is_killed_ends_the_run_with_an_error() -> None:
    with open_pool(2) as pool, pytest.raises(ProlipError):
        list(pool.imap_unordered(pool_jobs.die, range(6)))
