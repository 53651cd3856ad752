"""Names of classes in one spelling, and in files that other programs open."""

import unicodedata
from typing import Any

from prolip.core.errors import InputError


def normalize_name(raw: str) -> str:
    r"""Return a class name in Unicode's composed form (NFC), trimmed, with single spaces.

    File systems and keyboards differ in these; names that look different stay different.

    Examples
    --------
    >>> normalize_name(" cafe\u0301  noir ")
    'café noir'
    """
    name = " ".join(unicodedata.normalize("NFC", raw).split())
    if not name:
        raise InputError(f"class {raw!a} is empty: rename it")
    return name


def normalize_label(label: Any) -> Any:
    """Normalise a label, if it is text."""
    return normalize_name(label) if isinstance(label, str) else label
