"""How good a model is, and what would make it better: one module for each question."""
