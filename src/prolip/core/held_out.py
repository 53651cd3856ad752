"""What models say about support images that they were not fitted on: the honest half of a small data set."""

from dataclasses import dataclass

from prolip.core.arrays import Array


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """Answers about held-out images."""

    logits: Array  # [m, K], each row by a model that did not see the image
    y: Array  # labels [m]
    images: Array  # which images of the support set these are, [m]

    def __len__(self) -> int:
        return len(self.y)
