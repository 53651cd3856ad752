"""The paper: its experiments, datasets and protocols, and the methods that train through a tower."""
