"""The towers of an open_clip model: split at their heads, and opened for training.

Three kinds of image tower:

    CLIP ViT       v = pooled @ proj             a bare matrix [width, D]
    CLIP ResNet    v = c_proj(attention pool)    with bias, inside one torch function
    timm           v = projection, MLP, or SigLIP's r + fc2(h): whatever split_tower_torch.py finds

The text tower is run only as far as its longest prompt: it reads from left to right, so nothing behind the
last end token can change what is read off there, and prompts are a third of the 77 tokens that they are
padded to.
"""

from typing import Any

import torch
from torch import Tensor, nn

from prolip.encoders.split_tower_torch import HeadParameters, SplitTower, split_at_linear, split_without
from prolip.encoders.trainable_towers import Tokens, Towers


def split_image(model: Any, probe: Tensor) -> SplitTower:
    """Split the image tower at its head; `probe` are normalised pixels [1, 3, S, S] to check the split."""
    visual, run = model.visual, model.encode_image
    if isinstance(getattr(visual, "proj", None), nn.Parameter):
        return split_without(visual, "proj", None, HeadParameters(visual.proj), run, probe)
    last = getattr(getattr(visual, "attnpool", None), "c_proj", None)
    if isinstance(last, nn.Linear):
        parameters = HeadParameters(last.weight, last.bias, transposed=True)
        return split_without(visual, "attnpool", _MeanQueryPool(visual.attnpool), parameters, run, probe)
    return split_at_linear(visual, run, probe)


def split_text(model: Any, probe: Tensor) -> SplitTower:
    """Split the text tower at its head; `probe` are token numbers [1, L] to check the split."""
    tower, run = getattr(model, "text", model), model.encode_text
    matrix = getattr(tower, "text_projection", None)
    if isinstance(matrix, nn.Parameter):
        return split_without(tower, "text_projection", None, HeadParameters(matrix), run, probe)
    return split_at_linear(tower, run, probe)


class _MeanQueryPool(nn.Module):
    """CLIP's attention pooling before its last projection, with the mean as its only query."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        """Pool a map [B, C, H, W] to features [B, C]."""
        return _attend(self.pool, x, slice(0, 1)).flatten(1)


def _attend(pool: Any, x: Tensor, queries: slice) -> Tensor:
    """Apply CLIP's attention pooling to a map [B, C, H, W], before its projection: [B, queries, C].

    Token 0 is the mean, the others are the positions of the map; `queries` selects the queries.
    """
    tokens = x.flatten(2).transpose(1, 2)  # [B, HW, C]
    tokens = torch.cat([tokens.mean(dim=1, keepdim=True), tokens], dim=1) + pool.positional_embedding

    def heads(t: Tensor) -> Tensor:
        parts: Tensor = t.unflatten(2, (pool.num_heads, -1)).transpose(1, 2)  # [B, heads, places, C / heads]
        return parts

    query, key, value = pool.q_proj(tokens[:, queries]), pool.k_proj(tokens), pool.v_proj(tokens)
    attended = nn.functional.scaled_dot_product_attention(heads(query), heads(key), heads(value))
    return attended.transpose(1, 2).flatten(2)


def open_towers(model: Any) -> Towers:
    """Describe the towers of a model for training, for each of open_clip's image towers."""
    visual = model.visual
    text = getattr(model, "text", model)
    blocks, last = _image_blocks(visual)
    vit = isinstance(getattr(visual, "proj", None), nn.Parameter)
    words = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and not name.startswith("visual.")
    ]
    return Towers(
        model,
        model.encode_image,
        _TextRun(model),
        words=max(words, key=lambda module: module.num_embeddings, default=None),
        image_prefixes=("visual.",),
        last_layer_prefixes=last,
        image_blocks=blocks,
        text_blocks=tuple(getattr(getattr(text, "transformer", None), "resblocks", ())),
        class_token=visual.ln_pre if vit and _reads_class_token(visual) else None,
        embed_local=_local(visual),
    )


def _image_blocks(visual: Any) -> tuple[tuple[nn.Module, ...], tuple[str, ...]]:
    """Return the residual blocks of the image tower, and the prefixes of its last layer."""
    if hasattr(visual, "attnpool"):  # CLIP's ResNet
        stages = (visual.layer1, visual.layer2, visual.layer3, visual.layer4)
        return tuple(block for stage in stages for block in stage), ("visual.attnpool.",)
    if hasattr(getattr(visual, "transformer", None), "resblocks"):
        blocks = tuple(visual.transformer.resblocks)
        return blocks, (f"visual.transformer.resblocks.{len(blocks) - 1}.",)
    for inside in ("blocks", "stages"):  # timm's transformers and convolutional nets
        blocks = tuple(getattr(getattr(visual, "trunk", None), inside, ()))
        if blocks:
            return blocks, (f"visual.trunk.{inside}.{len(blocks) - 1}.", "visual.head.")
    return (), ("visual.head.",)


def _reads_class_token(visual: Any) -> bool:
    return visual.pool_type == "tok" and visual.attn_pool is None and visual.transformer.batch_first


def _local(visual: Any) -> Any:
    """Return a function from normalised pixels to local embeddings [B, places, D], if the tower has them."""
    if hasattr(visual, "attnpool"):

        def of_resnet(pixels: Tensor) -> Tensor:
            x = visual.stem(pixels)
            for stage in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
                x = stage(x)
            rows: Tensor = visual.attnpool.c_proj(_attend(visual.attnpool, x, slice(1, None)))
            return rows

        return of_resnet
    if isinstance(getattr(visual, "proj", None), nn.Parameter) and _reads_class_token(visual):

        def of_vit(pixels: Tensor) -> Tensor:
            hidden = visual.transformer(visual._embeds(pixels))  # noqa: SLF001 - the tokens that enter a ViT
            rows: Tensor = visual.ln_post(hidden[:, 1:]) @ visual.proj
            return rows

        return of_vit
    return None


class _TextRun:
    """Text embeddings of tokens, up to the longest prompt where the tower is causal."""

    def __init__(self, model: Any) -> None:
        self.caller = _Call(model)
        tower = getattr(model, "text", model)
        self.prefix = "model." if tower is model else "model.text."
        self.tower = tower
        pool = getattr(model, "text_pool_type", getattr(tower, "pool_type", None))
        mask = getattr(tower, "attn_mask", None)
        plain = getattr(tower, "cls_emb", None) is None and not getattr(tower, "use_pad_mask", False)
        self.causal = pool == "argmax" and isinstance(mask, Tensor) and plain

    def __call__(self, tokens: Tokens) -> Tensor:
        ids = tokens["input_ids"]
        rows: Tensor
        if not self.causal:
            rows = self.caller(ids)
            return rows
        length = int(ids.argmax(dim=1).max()) + 1
        shorter = {
            f"{self.prefix}positional_embedding": self.tower.positional_embedding[:length],
            f"{self.prefix}attn_mask": self.tower.attn_mask[:length, :length],
        }
        rows = torch.func.functional_call(self.caller, shorter, (ids[:, :length],))
        return rows


class _Call(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.model.encode_text(ids)
        return rows
