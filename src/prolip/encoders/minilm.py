"""all-MiniLM-L6-v2: the text tower of the offline encoder. BERT's architecture, six layers of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, LAYERS, HEADS, VOCABULARY, POSITIONS = 384, 6, 12, 30522, 512


class Layer(nn.Module):
    """Attention and a feed-forward net, each followed by its residual and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.attention_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Hidden states [B, L, 384]; mask [B, 1, 1, L] is true where a token is."""
        q, k, v = (
            linear(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.attention_norm(x + self.out(attended.transpose(1, 2).flatten(2)))
        return self.norm(x + self.down(nn.functional.gelu(self.up(x))))


class MiniLM(nn.Module):
    """Sentence embeddings [B, 384]: the mean over tokens, of unit length."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.embedding_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Embed token ids [B, L], mask [B, L] true where a token is."""
        return self.encode_embeddings(self.words(tokens), mask)

    def encode_embeddings(self, words: Tensor, mask: Tensor) -> Tensor:
        """The same from word embeddings [B, L, 384], for prompts that are learned."""
        length = words.shape[1]
        x = self.embedding_norm(words + self.positions.weight[:length] + self.segments.weight[0])
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        weight = mask[..., None].to(x.dtype)
        pooled = (x * weight).sum(dim=1) / weight.sum(dim=1)
        return nn.functional.normalize(pooled, dim=-1)

    def load_published(self, tensors: dict[str, Tensor]) -> None:
        """Take the published checkpoint's tensors, under their BERT names."""
        names = {
            "words.weight": "embeddings.word_embeddings.weight",
            "positions.weight": "embeddings.position_embeddings.weight",
            "segments.weight": "embeddings.token_type_embeddings.weight",
            "embedding_norm": "embeddings.LayerNorm",
            "query": "attention.self.query",
            "key": "attention.self.key",
            "value": "attention.self.value",
            "out": "attention.output.dense",
            "attention_norm": "attention.output.LayerNorm",
            "up": "intermediate.dense",
            "down": "output.dense",
            "norm": "output.LayerNorm",
        }
        state = {}
        for ours in self.state_dict():
            parts = ours.split(".")
            if parts[0] == "layers":
                theirs = f"encoder.layer.{parts[1]}.{names[parts[2]]}.{parts[3]}"
            else:
                theirs = names.get(ours) or f"{names[parts[0]]}.{parts[1]}"
            state[ours] = tensors[theirs]
        self.load_state_dict(state)


def pad_tokens(sequences: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Token ids [B, L] padded with 0, and their mask."""
    length = max(map(len, sequences))
    tokens = torch.tensor([ids + [0] * (length - len(ids)) for ids in sequences])
    mask = torch.tensor([[True] * len(ids) + [False] * (length - len(ids)) for ids in sequences])
    return tokens, mask
