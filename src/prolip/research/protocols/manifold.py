"""The test features before and after training, in two dimensions (the paper's UMAP figure).

UMAP gets the unit embeddings, with cosine distance, without the labels. Two numbers go with the figure: the
accuracy, and the share of each point's ten nearest neighbours, in the embedding itself, that have its class.
"""

from typing import Any

import numpy as np

from prolip import methods
from prolip.core import ModelError, Projected
from prolip.core.arrays import Array
from prolip.evaluate import metrics
from prolip.io.environment import require
from prolip.research.protocols.encoded_dataset import EncodedDataset
from prolip.research.protocols.run import Run

NEIGHBOURS = 10
BLOCK = 1 << 10  # rows of similarities at a time


def manifold(dataset: EncodedDataset, run: Run) -> dict[str, Any]:
    """Return points [n, 2] of the test images before and after a fit, their labels, and the two numbers."""
    task = run.task(dataset, run.draw(dataset).train)
    x, y = dataset.splits["test"].all()
    measured: dict[str, Any] = {"labels": y.tolist(), "classes": list(dataset.classes)}
    for stage, method in (("before", methods.create("zero_shot")), ("after", run.create())):
        fitted = method.fit(task)
        if not isinstance(fitted, Projected):
            raise ModelError(f"{run.method} does not change the embedding: there is nothing to draw")
        embedding = fitted.embed(x)
        measured[f"points_{stage}"] = np.round(umap_points(embedding, run.seed).astype(float), 3).tolist()
        measured[f"purity_{stage}"] = neighbour_purity(embedding, y)
        measured[f"accuracy_{stage}"] = metrics.accuracy(fitted.logits(x), y)
    return {**measured, "accuracy": measured["accuracy_after"]}


def umap_points(embedding: Array, seed: int) -> Any:
    """Map unit embeddings [n, D] to points [n, 2] by UMAP."""
    umap = require("umap", "bench", "the manifold", "umap-learn")
    neighbours = min(15, len(embedding) - 1)
    reducer = umap.UMAP(n_neighbors=neighbours, metric="cosine", random_state=seed, n_jobs=1)
    return reducer.fit_transform(embedding)


def neighbour_purity(embedding: Array, y: Array) -> float:
    """Compute the mean share of a point's nearest neighbours, by cosine, that have its class."""
    count, same = min(NEIGHBOURS, len(y) - 1), []
    for start in range(0, len(y), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(y)))
        similarity = embedding[rows] @ embedding.T
        similarity[np.arange(len(rows)), rows] = -np.inf  # of a point with itself
        near = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        same.append((y[near] == y[rows, None]).mean(axis=1))
    return float(np.concatenate(same).mean())
