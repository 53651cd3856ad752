"""Put what was learned back into the model, so that using it costs nothing more.

ProLIP's matrix stands where the pretrained one stood. RLA's A follows a linear head, and two linear maps are
one: (x W0 + b) A = x (W0 A) + b A. A tuned text projection stands where the pretrained one stood. The scale
takes the calibrated temperature in, so that a softmax of the model's own logits is the probability.

What does not fold: A after a head with a residual (its offset would have to be multiplied too), anything
after a tower that does not end in a linear map, and methods that are no linear map at all.
"""

from dataclasses import dataclass

import numpy as np

from prolip.core import Fitted, Head, Projected, UsageError
from prolip.encoders.base import Encoder
from prolip.methods.common.classifiers import TextProjected

_OTHERWISE = 'export it to="onnx", which takes any method'


@dataclass(frozen=True, eq=False)
class Folded:
    """The heads and the scale of an adapted model."""

    head: Head
    text_head: Head
    scale: float


def fold(fitted: Fitted, encoder: Encoder, temperature: float = 1.0) -> Folded:
    """The adapted model as heads of the base model, whose logits are divided by the temperature."""
    if isinstance(fitted, TextProjected) and fitted.per_template:
        return Folded(fitted.head, fitted.projection, fitted.scale / temperature)
    if not isinstance(fitted, Projected):
        raise UsageError(
            f"{fitted.method} does not fold into a checkpoint, as it is no linear map: {_OTHERWISE}"
        )
    changed = fitted.tuned or fitted.adapter is not None
    if changed and encoder.black_box_reason is not None:
        raise UsageError(
            f"{encoder.name} does not end in a linear map ({encoder.black_box_reason}), so that nothing can "
            f"be folded into it: {_OTHERWISE}"
        )
    head = fitted.head
    if fitted.adapter is not None:
        if head.residual:
            raise UsageError(f"rla does not fold into a head with a residual (SigLIP's): {_OTHERWISE}")
        adapter = fitted.adapter.astype(np.float64)
        bias = None if head.bias is None else (head.bias @ adapter).astype(np.float32)
        head = Head((head.weight @ adapter).astype(np.float32), bias)
    return Folded(head, encoder.text_head, fitted.scale / temperature)
