"""Adapted models on disk."""
