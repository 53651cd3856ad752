"""The paper's figures and backbones, for comparison with measured figures.

`published.json` has every number of the paper's tables, main text and supplement. Where the paper contradicts
itself, it has every value that the paper gives.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prolip.core.errors import check_name

# The paper's backbones: their encoders here, and the shape of their projection (D, Do).
BACKBONES = {
    "RN50": "open_clip:RN50/openai",
    "RN101": "open_clip:RN101/openai",
    "ViT-B/16": "open_clip:ViT-B-16/openai",
    "ViT-B/32": "open_clip:ViT-B-32/openai",
    "SigLIP ViT-B/16": "open_clip:ViT-B-16-SigLIP/webli",
}
PROJECTIONS = {"RN50": (1024, 2048), "RN101": (512, 2048), "ViT-B/32": (512, 768), "ViT-B/16": (512, 768)}


@dataclass(frozen=True)
class Published:
    """One table of the paper."""

    columns: tuple[str, ...]  # shots, datasets or measures
    # By (dataset, method); the dataset is None where a row is a mean over datasets.
    values: dict[tuple[str | None, str], tuple[float | None, ...]]

    def value(self, method: str, column: str, dataset: str | None = None) -> float | None:
        """Return a figure, or None where the paper has none."""
        row = self.values.get((dataset, method))
        return row[self.columns.index(column)] if row is not None and column in self.columns else None


@cache
def published(name: str) -> Published:
    """Return a published table by its name in `published.json`."""
    tables = _tables()
    check_name("published table", name, tables)
    rows = tables[name]["rows"]
    values = {(row.get("dataset"), row["method"]): tuple(row["values"]) for row in rows}
    return Published(tuple(tables[name]["columns"]), values)


@cache
def _tables() -> dict[str, Any]:
    text = Path(__file__).with_name("published.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)["tables"]
    return tables
