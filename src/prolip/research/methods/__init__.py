"""Methods on cached features that experiments compare with; `prolip compare` does not offer them."""
