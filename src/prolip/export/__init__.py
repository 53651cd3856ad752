"""Adapted models on disk: saved, and exported to other libraries."""
