"""Teach a CLIP-like model your own classes from a few images."""

__version__ = "0.1.0"
