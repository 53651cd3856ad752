"""All test images classified together, by the clusters that they form (`evaluate.unlabelled`)."""

from typing import Any

import numpy as np

from prolip.evaluate import Confidence, metrics
from prolip.evaluate.transductive import Axes, fit_gaussians
from prolip.evaluate.unlabelled import predict_transductive
from prolip.research.protocols.encoded_dataset import EncodedDataset
from prolip.research.protocols.run import Run


def classify_together(dataset: EncodedDataset, run: Run) -> dict[str, Any]:
    """Measure accuracy with all test images classified together, on top of the run's method.

    Zero-shot has no labelled images: the clusters are of the test images alone.
    """
    task, method = run.task(dataset, run.draw(dataset).train), run.create()
    if method.name == "zero_shot":
        fitted = method.fit(task)
        x, y = dataset.test_split(fitted)
        f = Axes.of(x, len(dataset.classes))(x)
        nobody = np.zeros(0, np.int64)
        posterior = fit_gaussians(f[:0], nobody, f, fitted.logits(x), np.ones(len(f), np.float32))
        return {"accuracy": metrics.accuracy(posterior.log_posterior, y)}
    fitted, held_out = method.fit_held_out(task)
    x, y = dataset.test_split(fitted)
    found = predict_transductive(fitted, Confidence.of(fitted, task, held_out), task, x)
    return {"accuracy": metrics.accuracy(found.probabilities, y)}
