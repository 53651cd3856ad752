"""Running an experiment: its plan, its features, workers, and the store of results."""
