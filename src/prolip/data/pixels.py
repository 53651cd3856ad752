"""Arrays of pixels, channels first or last."""

from typing import Any

from prolip.core.arrays import Array, to_numpy

CHANNELS = (1, 3, 4)  # grey, RGB, RGBA


def channels_last(source: Any) -> Array:
    """The pixels of one picture [H, W], or [H, W, C] with C of 1, 3 or 4.

    Which axis has the channels is told by its length; where both ends would do, NumPy's arrays have them last
    and torch's tensors first, as is usual for each.
    """
    values = to_numpy(source)
    if values.ndim != 3:
        return values
    first, last = values.shape[0] in CHANNELS, values.shape[2] in CHANNELS
    tensor = hasattr(source, "detach")
    return values.transpose(1, 2, 0) if first and (tensor or not last) else values


def is_one_picture(source: Any) -> bool | None:
    """Whether an array is one picture, not a batch of them; None where nobody can tell.

    [3, 28, 28] of NumPy may be a colour picture, channels first, or three grey ones.
    """
    if source.ndim != 3:
        return bool(source.ndim == 2)
    if hasattr(source, "detach"):
        return source.shape[0] in CHANNELS or source.shape[2] in CHANNELS[1:]
    if source.shape[2] in CHANNELS[1:]:
        return True
    return None if source.shape[0] in CHANNELS else False
