"""A unit of work: one method, once, under one protocol. Small, independent, repeatable to the bit."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from prolip.research.catalogue.experiment import tuples
from prolip.research.protocols.protocols import Setting, Trial


@dataclass(frozen=True)
class Unit:
    """Everything that is asked for; what it is asked of (features, code) comes with its result's key."""

    protocol: str
    dataset: str
    model: str
    trial: Trial  # the method, its options and the draw
    targets: tuple[str, ...] = ()  # further datasets to measure on

    def as_json(self) -> str:
        """The same text for the same unit."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Unit:
        """The inverse of `as_json`."""
        fields = json.loads(text)
        trial = fields["trial"]
        setting = Setting(**tuples(trial["setting"]))
        return cls(**tuples({**fields, "trial": Trial(**{**trial, "setting": setting})}))
