"""Events to open pages."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette", reason="the extra `app` is not installed")

from prolip.app.events import Events


def test_every_page_has_every_event_in_order_until_the_end():
    async def run():
        events = Events()
        events.attach()
        streams = [events.stream() for _ in range(3)]
        for stream in streams:
            assert await anext(stream) == ": connected\n\n"
        await streams.pop().aclose()
        for number in range(3):
            events.publish({"number": number})
        events.close()
        for stream in streams:
            lines = [line async for line in stream]
            assert lines == [f'data: {{"number": {number}}}\n\n' for number in range(3)]

    with ThreadPoolExecutor(1) as apart:  # from a loop of another test's browser, should one be running
        apart.submit(asyncio.run, asyncio.wait_for(run(), 30)).result()
