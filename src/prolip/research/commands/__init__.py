"""Commands of research: `prolip bench` and `prolip datasets`."""
