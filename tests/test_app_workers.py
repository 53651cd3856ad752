"""Work of the server beside its event loop: bounded, and large images one after the other."""

import asyncio
import threading

import pytest

pytest.importorskip("starlette", reason="the extra `app` is not installed")

from prolip.app.batcher import Busy
from prolip.app.images import LARGE_PIXELS, LargeImage
from prolip.app.workers import MAX_LARGE_PENDING, MAX_PENDING, LargeImageQueue, WorkerPool


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


def test_large_images_run_one_at_a_time():
    async def run():
        queue, open_now, most = LargeImageQueue(), 0, 0

        async def decode(max_pixels):
            nonlocal open_now, most
            if max_pixels == LARGE_PIXELS:
                raise LargeImage("large", "")
            open_now += 1
            most = max(most, open_now)
            await asyncio.sleep(0.001)
            open_now -= 1
            return max_pixels

        calls = [queue.run(decode) for _ in range(MAX_LARGE_PENDING + 3)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        return most, [type(each) for each in found].count(Busy)

    assert apart(run) == (1, 3)
