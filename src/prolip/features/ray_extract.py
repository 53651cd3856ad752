"""Joining a Ray cluster."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ray_cluster(ray: Any, address: str, **options: Any) -> Iterator[None]:
    """Join a cluster, or start one with these options of `ray.init`; an initialised one stays."""
    started = not ray.is_initialized()
    if started:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address=address, **quiet, **options)
    try:
        yield
    finally:
        if started:
            ray.shutdown()
