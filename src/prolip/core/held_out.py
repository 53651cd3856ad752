"""Out-of-fold predictions on the support set."""

from dataclasses import dataclass

from prolip.core.arrays import Array


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """Predictions on held-out images."""

    logits: Array  # [m, K], each row by a model that did not see the image
    y: Array  # labels [m]
    images: Array  # indices in the support set [m]

    def __len__(self) -> int:
        return len(self.y)
