"""Work of the server beside its event loop: bounded."""

import asyncio
import threading

import pytest

pytest.importorskip("starlette", reason="the extra `app` is not installed")

from prolip.app.batcher import Busy
from prolip.app.workers import MAX_PENDING, WorkerPool


def apart(work):
    """Run a coroutine in a thread: another test's browser may have a loop in this one."""
    found = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(work())))
    thread.start()
    thread.join()
    return found[0]


def test_what_would_wait_too_long_is_refused():
    async def run():
        pool, go = WorkerPool(), threading.Event()
        waiting = [asyncio.create_task(pool.run(lambda k=k: go.wait() and k)) for k in range(MAX_PENDING)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await pool.run(int)
        go.set()
        found = await asyncio.gather(*waiting)
        assert await pool.run(int) == 0  # there is room again
        pool.close()
        return found

    assert apart(run) == list(range(MAX_PENDING))
