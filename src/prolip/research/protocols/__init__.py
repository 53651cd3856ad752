"""Protocols of the experiments, on cached features."""
