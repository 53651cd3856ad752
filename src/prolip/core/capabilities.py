"""What a method may need of a model, as flags."""

import enum


class Capability(enum.Flag):
    """Something that a method needs, or that a model offers."""

    EMBEDDINGS = enum.auto()
    IMAGE_FEATURES = enum.auto()
    TEXT_FEATURES = enum.auto()
    TOKEN_EMBEDDINGS = enum.auto()
    LOCAL_FEATURES = enum.auto()
    IMAGE_TOWER = enum.auto()
    ATTENTION = enum.auto()
    CLASS_TOKEN = enum.auto()

    def describe(self) -> list[str]:
        """Return each flag in words."""
        return [str(flag.name).lower().replace("_", " ") for flag in Capability if flag in self]
