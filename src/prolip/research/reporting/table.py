"""What a table is made of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A figure: percent, unless the table's unit is another."""

    measured: float | None  # the mean
    std: float | None = None  # over seeds
    published: float | None = None  # the paper's figure
    comparable: bool = False  # whether the measured one could equal it
    missing: int = 0  # runs that should be in it and are not
    gain: float | None = None  # the mean paired difference to another line
    interval: float | None = None  # half the width of its 95 % interval

    @property
    def difference(self) -> float | None:
        """Measured less published, where that means something."""
        if self.measured is None or self.published is None or not self.comparable or self.missing:
            return None
        return self.measured - self.published

    @property
    def clear(self) -> bool:
        """Whether the gain is more than noise: its interval leaves out zero."""
        return self.gain is not None and self.interval is not None and abs(self.gain) > self.interval


@dataclass(frozen=True)
class TableRow:
    """A row of a table; `group` is the dataset or the model that it belongs to, empty for the average."""

    label: str
    cells: tuple[Cell | None, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A table that can be printed in any format; `against` is the line that gains are over."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    unit: str = "%"
    against: str = ""
