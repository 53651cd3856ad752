"""Experiments, and the pictures and tables that they make."""
