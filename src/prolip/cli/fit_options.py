"""What the options of `prolip fit` say."""

from typing import Any

LARGEST = 1e12  # of a number among a method's options: beyond it, float32 has no room for what follows


def parse_lam(lam: str | None) -> str | float | None:
    """A number where it is one; names stay names."""
    if lam is None:
        return None
    try:
        return float(lam)
    except ValueError:
        return lam


def parse_options(given: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs; numbers, true, false and none are what they look like, the rest are words."""
    from prolip.core import UsageError
    from prolip.core.reading import parse_json

    options: dict[str, Any] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--option takes NAME=VALUE, got {pair[:80]!r}")
        words = {"true": True, "false": False, "none": None}
        try:
            options[name] = words[value.lower()] if value.lower() in words else parse_json(value)
        except ValueError:
            options[name] = value
        if isinstance(options[name], (int, float)) and not abs(options[name]) <= LARGEST:
            raise UsageError(f"--option {name} must be a number of at most {LARGEST:g}, got {value[:40]}")
    return options


def parse_templates(given: list[str] | None) -> str | list[str] | None:
    """A single name without {} stands for a dataset's own templates."""
    if given and len(given) == 1 and "{}" not in given[0]:
        return given[0]
    return given or None
