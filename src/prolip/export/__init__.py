"""Adapted models on disk: saved, and exported to other libraries."""

from prolip.export.adapter import apply_adapter, load_adapter

__all__ = ["apply_adapter", "load_adapter"]
