"""Running an experiment: the plan, its features, the units, and the store of their results."""
