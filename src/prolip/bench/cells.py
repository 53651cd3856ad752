"""What a table is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A figure: percent, unless the table's unit is another.

    `missing` counts runs that should be in it and are not.
    """

    measured: float | None
    std: float | None = None
    published: float | None = None
    comparable: bool = False
    missing: int = 0

    @property
    def difference(self) -> float | None:
        """Measured less published, where that means something."""
        if self.measured is None or self.published is None or not self.comparable or self.missing:
            return None
        return self.measured - self.published


@dataclass(frozen=True)
class Line:
    """A line of a table; `group` is the dataset or the model that it belongs to, empty for the average."""

    label: str
    cells: tuple[Cell | None, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A table that can be printed in any format."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    unit: str = "%"
