"""Counts of what went wrong in many trials."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Faults:
    """How often each fault occurred in trials of one kind, and the first few examples."""

    name: str
    found: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, kind: str, example: str) -> None:
        """Count a fault, and keep the first few examples."""
        self.found[kind] += 1
        if len(self.examples) < 5:
            self.examples.append(f"{kind}: {example}")
