"""A fitted model through what is saved of it."""

import json
from dataclasses import asdict

from prolip import methods
from prolip.core import Settings


def restored(fitted, tensors, head, text, config=None):
    """The model again, from tensors and from JSON that was written and read."""
    saved = {
        "config": fitted.config() if config is None else config,
        "settings": asdict(fitted.settings),
        "report": fitted.report,
    }
    read = json.loads(json.dumps(saved))
    settings = Settings(**read["settings"])
    return methods.restore(fitted.kind, tensors, read["config"], head, text, settings, read["report"])
