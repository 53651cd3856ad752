"""Adapted models on disk: saved, and exported to other libraries."""

from typing import Any

__all__ = ["apply_adapter", "load_adapter"]


def __getattr__(name: str) -> Any:
    """Import adapters on access: a saved model loads without them."""
    if name not in __all__:
        raise AttributeError(f"module 'prolip.export' has no attribute {name!r}")
    from prolip.export import adapter

    return getattr(adapter, name)
