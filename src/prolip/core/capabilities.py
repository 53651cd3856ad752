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
        return [words for flag, words in _WORDS.items() if flag in self]


_WORDS = {
    Capability.EMBEDDINGS: "image embeddings",
    Capability.IMAGE_FEATURES: "image features before the projection",
    Capability.TEXT_FEATURES: "text features before the projection",
    Capability.TOKEN_EMBEDDINGS: "token embeddings in its text tower",
    Capability.LOCAL_FEATURES: "local features",
    Capability.IMAGE_TOWER: "an image tower that can be trained",
    Capability.ATTENTION: "transformer blocks with query, key and value projections in both towers",
    Capability.CLASS_TOKEN: "a vision transformer that reads a class token",
}
