"""Fold what was learned into the model, so that inference costs nothing more.

ProLIP's matrix replaces the pretrained one. RLA's A follows a linear head, and two linear maps are one:
(x W0 + b) A = x (W0 A) + b A. A tuned text projection replaces the pretrained one. The scale includes the
calibrated temperature, so that a softmax of the model's own logits gives probabilities.

What cannot be folded: A after a head with a residual (its offset would have to be multiplied too), anything
after a tower that does not end in a linear map, and methods that are not linear maps.
"""

import numpy as np

from prolip.core import Fitted, Head, Projected, UsageError
from prolip.encoders.base import Encoder
from prolip.methods.classifiers import TextProjected

_OTHERWISE = "export it to onnx, which works for any method"


def fold(fitted: Fitted, encoder: Encoder, temperature: float = 1.0) -> tuple[Head, Head, float]:
    """Return the two heads of the adapted model and its scale, divided by the temperature."""
    if isinstance(fitted, TextProjected) and fitted.per_template:
        text_head = Head(fitted.projection, fitted.projection_bias)
        return fitted.head, text_head, fitted.scale / temperature
    if not isinstance(fitted, Projected):
        raise UsageError(
            f"{fitted.method} cannot be folded into a checkpoint, as it is not a linear map: {_OTHERWISE}"
        )
    changed = fitted.tuned or fitted.adapter is not None
    if changed and encoder.black_box_reason is not None:
        raise UsageError(
            f"{encoder.name} does not end in a linear map ({encoder.black_box_reason}), into which a "
            f"method could be folded: {_OTHERWISE}"
        )
    head = fitted.head
    if fitted.adapter is not None:
        if head.residual:
            raise UsageError(f"rla cannot be folded into a head with a residual (SigLIP's): {_OTHERWISE}")
        adapter = fitted.adapter.astype(np.float64)
        bias = None if head.bias is None else (head.bias @ adapter).astype(np.float32)
        head = Head((head.weight @ adapter).astype(np.float32), bias)
    return head, encoder.text_head, fitted.scale / temperature
