"""Events to open pages: each page has its own fate."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette", reason="the extra `app` is not installed")

from prolip.app.events import MAX_BACKLOG, Events


def test_a_page_that_is_behind_ends_alone():
    async def run():
        events = Events()
        events.attach()
        streams = [events.stream() for _ in range(8)]
        for stream in streams:
            assert await anext(stream) == ": connected\n\n"
        slow, *healthy = streams
        for number in range(MAX_BACKLOG + 1):
            events.publish({"number": number})
            await asyncio.sleep(0)
            for stream in healthy:
                assert await anext(stream) == f'data: {{"number": {number}}}\n\n'
        assert len([line async for line in slow]) == MAX_BACKLOG
        events.close()
        for stream in healthy:
            assert not [line async for line in stream]

    with ThreadPoolExecutor(1) as apart:  # from a loop of another test's browser, should one be running
        apart.submit(asyncio.run, asyncio.wait_for(run(), 30)).result()
