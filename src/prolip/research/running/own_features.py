"""Features of one's own as the source of an experiment."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prolip import encoders
from prolip.core import Text, UsageError
from prolip.core.errors import check_name
from prolip.data.templates import DEFAULT
from prolip.research.catalogue.experiment import Experiment
from prolip.research.datasets.features import FeatureDataset
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.run import Run
from prolip.research.running.encoding import Encoding, read_encoding
from prolip.research.running.plan import Plan
from prolip.research.running.source import EncodingProgress, Place, Source

OWN = "own features"  # stands for the encoder where texts are given


class OwnFeatures(Source):
    """Datasets of features; an encoder reads the names of their classes where they have no text."""

    def __init__(self, datasets: Sequence[FeatureDataset], device: str = "auto") -> None:
        self.datasets = {dataset.name: dataset for dataset in datasets}
        if len(self.datasets) < len(datasets):
            raise UsageError("two datasets of features have the same name: rename one")
        self.device = device

    def select(self, experiment: Experiment, names: Sequence[str]) -> tuple[str, ...]:
        """Return all datasets, or those that are named; a transfer begins with the first."""
        for name in names:
            check_name("dataset", name, self.datasets)
        return tuple(names) or tuple(self.datasets)

    def defaults(self, experiment: Experiment, datasets: Sequence[str]) -> dict[str, Any]:
        """Return that no encoder is needed, and as many views as every dataset has."""
        views = min(len(np.asarray(self.datasets[name].x)) for name in datasets)
        return {"models": (OWN,), "views": min(views, experiment.views)}

    def open(
        self, plan: Plan, progress: EncodingProgress | None = None
    ) -> dict[Place, tuple[Encoding, Path]]:
        """Write the arrays into the cache folder, as encoded images are."""
        files = {}
        for place in dict.fromkeys(place for run in plan.runs for place in Place.of(run)):
            runs = [run for run in plan.runs if place in Place.of(run)]
            path = self._encoding(place, runs).in_cache()
            files[place] = read_encoding(path), path
        return files

    def _encoding(self, place: Place, runs: Sequence[Run]) -> Encoding:
        dataset = self.datasets[place.dataset]
        x, y = np.asarray(dataset.x), np.asarray(dataset.y)
        splits, hashes = {}, {}
        for name, rows in dataset.images.items():
            views = x[:, rows] if name == "train" else x[:1, rows]
            splits[name] = EncodedSplit.whole(views, y[rows].tolist())
            digests = [
                hashlib.sha256(np.ascontiguousarray(views[:, i]).data).digest()[:8] for i in range(len(rows))
            ]
            hashes[name] = np.frombuffer(b"".join(digests), np.uint8).reshape(len(rows), 8)
        texts = {template: self._text(dataset, place.encoder) for template in {run.template for run in runs}}
        encoded = EncodedDataset(
            dataset.name,
            tuple(dataset.classes or ()),
            dataset.head,
            dataset.scale,
            texts,
            splits,
            title=dataset.name,
        )
        origin = json.dumps([OWN, place.encoder if dataset.text is None else "", dataset.scale])
        return Encoding(encoded, hashes, origin)

    def _text(self, dataset: FeatureDataset, encoder: str) -> Text:
        if (text := dataset.as_text()) is not None:
            return text
        if encoder == OWN:
            raise UsageError(
                f"{dataset.name} has no text: give `text` in the file, or name the encoder: models=('clip',)"
            )
        read = encoders.load(encoder, self.device).text(list(dataset.classes or ()), DEFAULT)
        return replace(read, classes=tuple(dataset.classes or ()))
