"""Methods that train through a tower, beside their authors' steps in plain torch.

On tiny towers of CLIP's architectures with random weights. The towers' forward passes are written here too:
nothing is shared with the methods but the weights and the random numbers (crops, orders, starting weights).
"""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import open_clip
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, multi_head_attention_forward, normalize

from full.tiny_models import CLASSES, TOWERS, write_folder
from pictures import COLOURS, blotch
from prolip import encoders, methods
from prolip.core.arrays import Array, to_numpy
from prolip.research.towers.coupled_prompts import Coupling
from prolip.research.towers.test_time import TPT
from prolip.research.towers.tower_method import TowerTask
from reference.closed_forms import Pair
from reference.compare import STEPS, Line, differences
from reference.problems import SHOTS, VIEWS
from reference.reference import cosine

SEED, SCALE, TESTED, EPOCHS = 5, 100.0, 20, 20
SETTINGS = tuple((shots, views) for shots in SHOTS for views in VIEWS)
Insert = Callable[[int, Tensor], Tensor]  # tokens at the entry of a block, by its number
Changes = list[list[tuple[Tensor, Tensor]]]  # LoRA's A and B of query, key and value, for each block


@dataclass(frozen=True, eq=False)
class TowerProblem:
    """A support set of a tiny model, as many validation images, and test images."""

    name: str
    task: TowerTask
    validation: TowerTask
    model: Any  # open_clip's, frozen
    crops: Array  # pixels of the support set's views [V, n, S, S, 3]
    pixels: Array  # of test images [m, S, S, 3]
    y: Array

    def ours(self, name: str, validated: bool = False, **options: Any) -> Array:
        """Our method's logits on the test images."""
        method = methods.create(name, seed=SEED, **options)
        fitted = method.fit(self.task, validation=self.validation if validated else None)
        assert self.task.encoder is not None
        return fitted.logits(fitted.encoder_for(self.task.encoder).encode(self.pixels))

    def normalised(self, pixels: Array) -> Tensor:
        """Pixels as a tower takes them."""
        preprocess = self.encoder.preprocess
        x = (torch.tensor(pixels).float() / 255 - torch.tensor(preprocess.mean)) / torch.tensor(
            preprocess.std
        )
        return x.movedim(-1, -3)

    @property
    def encoder(self) -> encoders.Encoder:
        """The encoder behind the features."""
        assert self.task.encoder is not None
        return self.task.encoder

    @property
    def labels(self) -> Tensor:
        """Labels of the support set."""
        return torch.tensor(self.task.y)

    def images(self, pixels: Array) -> Tensor:
        """Unit embeddings of images, by open_clip itself."""
        with torch.no_grad():
            return normalize(self.model.encode_image(self.normalised(pixels)), dim=-1)

    def crops_of(self, area: float) -> Callable[[Tensor, int], Array]:
        """A function that gives the crops of images in an epoch."""
        preprocess = replace(self.encoder.preprocess, view_area=area)

        def crop(index: int, epoch: int) -> Array:
            return preprocess.augment(self.task.images[index], random.Random(f"{SEED} {index} {epoch}"))

        return lambda rows, epoch: np.stack([crop(index, epoch) for index in rows.tolist()])


def problems(kind: str) -> Iterator[TowerProblem]:
    """Pictures of three colours, through a "vit" or a "resnet"."""
    with TemporaryDirectory() as folder:
        encoder = encoders.load(
            f"open_clip:local-dir:{write_folder(Path(folder) / kind, TOWERS[kind])}", "cpu"
        )
    model = copy.deepcopy(encoder.towers().model).requires_grad_(False)
    template = "a photo of a {}."
    text = encoder.text(CLASSES, [template])

    def draw(count: int, first: int) -> tuple[list[Any], Array, Array]:
        pictures = [
            blotch(c, first + 100 * k + i) for k, c in enumerate(COLOURS.values()) for i in range(count)
        ]
        centres = np.stack([encoder.preprocess.centre(picture) for picture in pictures])
        return pictures, centres, np.arange(len(COLOURS)).repeat(count)

    _, pixels, y = draw(TESTED, 5000)
    for shots, views in SETTINGS:
        (pictures, centres, labels), held = draw(shots, 0), draw(shots, 1000)
        rng = random.Random(0)
        others = [[encoder.preprocess.augment(p, rng) for p in pictures] for _ in range(views - 1)]
        crops = np.stack([centres, *(np.stack(view) for view in others)])
        x = np.stack([encoder.encode(view) for view in crops])
        rest = (text, encoder.head, SCALE, None, (template,))
        task = TowerTask(x, labels, *rest, tuple(pictures), encoder=encoder)
        validation = TowerTask(encoder.encode(held[1]), held[2], *rest, tuple(held[0]), encoder=encoder)
        name = f"{kind}, {shots} shots, {views} views"
        yield TowerProblem(name, task, validation, model, crops, pixels, y)


# The towers.


def attention(layer: nn.MultiheadAttention, x: Tensor, mask: Tensor | None, change: Any = None) -> Tensor:
    """Self-attention, with LoRA's changes of query, key and value where there are any."""
    parts = []
    weights, biases = layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3)
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        part = x @ weight.T + bias
        if change is not None:
            a, b = change[i]
            part = part + 2**-0.5 * dropout(x, 0.25) @ a.T @ b.T
        parts.append(part.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2))
    q, k, v = parts
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    weights = (scores if mask is None else scores + mask).softmax(dim=-1)
    return layer.out_proj((weights @ v).transpose(1, 2).flatten(2))


def run_blocks(
    blocks: Any,
    x: Tensor,
    mask: Tensor | None = None,
    insert: Insert | None = None,
    changes: Changes | None = None,
) -> Tensor:
    """A transformer's residual blocks."""
    for depth, block in enumerate(blocks):
        x = x if insert is None else insert(depth, x)
        x = x + attention(block.attn, block.ln_1(x), mask, None if changes is None else changes[depth])
        x = x + block.mlp(block.ln_2(x))
    return x


def text_features(
    model: Any, tokens: Tensor, words: Tensor, insert: Insert | None = None, changes: Changes | None = None
) -> Tensor:
    """Text embeddings [P, D], not of unit length, of tokens [P, L] with word embeddings [P, L, De]."""
    length = tokens.shape[1]
    mask = torch.full((length, length), -math.inf).triu(1)
    x = run_blocks(
        model.transformer.resblocks, words + model.positional_embedding[:length], mask, insert, changes
    )
    return model.ln_final(x)[torch.arange(len(x)), tokens.argmax(dim=1)] @ model.text_projection


def image_features(
    model: Any,
    pixels: Tensor,
    prompts: Tensor | None = None,
    insert: Insert | None = None,
    changes: Any = None,
) -> Tensor:
    """Image embeddings [B, D], not of unit length, of a vision transformer, with further tokens."""
    visual = model.visual
    x = visual.conv1(pixels).flatten(2).mT
    x = torch.cat([visual.class_embedding.expand(len(x), 1, -1), x], dim=1) + visual.positional_embedding
    if prompts is not None:
        x = torch.cat([x, prompts.expand(len(x), -1, -1)], dim=1)
    x = run_blocks(visual.transformer.resblocks, visual.ln_pre(x), None, insert, changes)
    return visual.ln_post(x[:, 0]) @ visual.proj


def regions(model: Any, pixels: Tensor) -> Tensor:
    """A ResNet's pooling with every place as a query [B, 1 + L, D]: the whole image, then its places."""
    visual, pool = model.visual, model.visual.attnpool
    x = visual.layer4(visual.layer3(visual.layer2(visual.layer1(visual.stem(pixels)))))
    x = x.flatten(2).permute(2, 0, 1)
    x = torch.cat([x.mean(0, keepdim=True), x]) + pool.positional_embedding[:, None]
    maps = pool.q_proj, pool.k_proj, pool.v_proj
    found, _ = multi_head_attention_forward(
        x, x, x, x.shape[2], pool.num_heads, None, torch.cat([each.bias for each in maps]), None, None, False,
        0.0, pool.c_proj.weight, pool.c_proj.bias, use_separate_proj_weight=True, need_weights=False,
        q_proj_weight=maps[0].weight, k_proj_weight=maps[1].weight, v_proj_weight=maps[2].weight,
    )  # fmt: skip
    return found.transpose(0, 1)


# Prompts, as CoOp's program and its descendants build them.


class Prompts:
    """`phrase name.` for each class, its first `count` tokens after the start replaced by learned ones."""

    def __init__(self, model: Any, phrase: str, count: int) -> None:
        self.model, self.count = model, count
        self.tokens = tokenize([f"{phrase} {name}." for name in CLASSES])
        self.words = model.token_embedding(self.tokens)

    def features(self, context: Tensor, insert: Insert | None = None) -> Tensor:
        """Text embeddings [K, D], not of unit length, of a context [M, De]."""
        shared = context.expand(len(CLASSES), -1, -1)
        words = torch.cat([self.words[:, :1], shared, self.words[:, 1 + self.count :]], dim=1)
        return text_features(self.model, self.tokens, words, insert)

    def rows(self, context: Tensor) -> Tensor:
        """The same with unit length."""
        return normalize(self.features(context), dim=1)


def tokenize(texts: list[str]) -> Tensor:
    """CLIP's tokens, up to the longest text."""
    tokens = open_clip.tokenize(texts, TOWERS["vit"]["text_cfg"]["context_length"])
    return tokens[:, : int(tokens.argmax(dim=1).max()) + 1]


def start(model: Any, phrase: str) -> Tensor:
    """The embeddings of as many tokens of a phrase as it has words."""
    return model.token_embedding(tokenize([phrase]))[0, 1 : 1 + len(phrase.split(" "))].clone()


def noise(count: int, width: int) -> Tensor:
    """Random words."""
    return 0.02 * torch.randn(count, width, generator=torch.Generator().manual_seed(SEED))


def orders(images: int, epoch: int, size: int, drop_last: bool = True) -> list[Tensor]:
    """The batches of an epoch; a partial one counts where it is the only one."""
    generator = torch.Generator().manual_seed(SEED * 1_000_003 + epoch)
    batches = list(torch.randperm(images, generator=generator).split(size))
    return [batch for batch in batches if len(batch) == size] or batches if drop_last else batches


Backward = Callable[[Tensor, int], None]  # sets the gradients, for rows of the support set in an epoch


def dassl(
    parameters: list[Tensor], backward: Backward, images: int, lr: float, epochs: int, size: int
) -> None:
    """SGD with momentum and weight decay: an epoch at 1e-5, then a cosine that falls once an epoch."""
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=5e-4)
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = 1e-5 if epoch == 0 else cosine(lr, (epoch - 1) / epochs)
        for batch in orders(images, epoch, size):
            optimizer.zero_grad()
            backward(batch, epoch)
            optimizer.step()


def learn_words(
    problem: TowerProblem,
    prompts: Prompts,
    context: Tensor,
    epochs: int,
    size: int = 32,
    area: float | None = None,
    backward: Callable[[Tensor, Tensor, Tensor, Tensor], None] | None = None,
) -> Tensor:
    """Logits of the test images by words that CoOp's steps learn; `backward` replaces their gradient."""
    context.requires_grad_()
    crops = None if area is None else problem.crops_of(area)
    views, y = torch.stack([problem.images(view) for view in problem.crops]), problem.labels

    def step(batch: Tensor, epoch: int) -> None:
        z = views[epoch % len(views), batch] if crops is None else problem.images(crops(batch, epoch))
        rows = prompts.rows(context)
        loss = cross_entropy(SCALE * z @ rows.T, y[batch])
        loss.backward() if backward is None else backward(loss, rows, z, context)

    dassl([context], step, problem.task.n, 0.002, epochs, size)
    with torch.no_grad():
        return SCALE * problem.images(problem.pixels) @ prompts.rows(context).T


def coop(problem: TowerProblem) -> Pair:
    """Sixteen random words; 50, 100 or 200 epochs."""
    width = problem.model.token_embedding.embedding_dim
    epochs = {1: 50, 4: 100, 16: 200}[int(problem.task.shots)]
    prompts = Prompts(problem.model, " ".join("X" * 16), 16)
    return problem.ours("coop"), to_numpy(learn_words(problem, prompts, noise(16, width), epochs))


def coop_phrase(problem: TowerProblem) -> Pair:
    """From "a photo of a", on new crops in each epoch."""
    phrase = "a photo of a"
    prompts, context = Prompts(problem.model, phrase, 4), start(problem.model, phrase)
    theirs = learn_words(problem, prompts, context, EPOCHS, area=0.08)
    return problem.ours("coop", init=phrase, view_area=0.08, epochs=EPOCHS), to_numpy(theirs)


def coop_of_lp(problem: TowerProblem) -> Pair:
    """LP++'s authors' program: plain SGD, the scheduler called at each step, the best epoch."""
    model, epochs = problem.model, EPOCHS
    prompts, context = Prompts(model, " ".join("X" * 16), 16), noise(16, model.token_embedding.embedding_dim)
    crops, y = problem.crops_of(0.5), problem.labels
    held = problem.images(np.stack([problem.encoder.preprocess.centre(p) for p in problem.validation.images]))
    optimizer = torch.optim.SGD([context.requires_grad_()], lr=0.002)
    best, kept, count = 0.0, context.detach().clone(), 0
    for epoch in range(epochs):
        for batch in orders(problem.task.n, epoch, 32, drop_last=False):
            optimizer.param_groups[0]["lr"] = 1e-5 if count == 0 else cosine(0.002, (count - 1) / epochs)
            count += 1
            optimizer.zero_grad()
            cross_entropy(
                SCALE * problem.images(crops(batch, epoch)) @ prompts.rows(context).T, y[batch]
            ).backward()
            optimizer.step()
        with torch.no_grad():
            found = (held @ prompts.rows(context).T).argmax(dim=1)
        right = float((found == torch.tensor(problem.validation.y)).float().mean())
        if right > best:
            best, kept = right, context.detach().clone()
    with torch.no_grad():
        theirs = SCALE * problem.images(problem.pixels) @ prompts.rows(kept).T
    options = {"program": "lp++", "view_area": 0.5, "epochs": epochs}
    return problem.ours("coop", validated=True, **options), to_numpy(theirs)


def kgcoop(problem: TowerProblem) -> Pair:
    """Eight times the distance from the rows of the hand-written prompt, batches of 128."""
    phrase, model = "a photo of a", problem.model
    tokens = tokenize([f"a photo of a {name}, a type of texture." for name in CLASSES])
    teacher = normalize(text_features(model, tokens, model.token_embedding(tokens)), dim=1)

    def backward(loss: Tensor, rows: Tensor, z: Tensor, context: Tensor) -> None:
        (loss + 8 * (1 - (rows * teacher).sum(dim=1).mean())).backward()

    prompts, context = Prompts(model, phrase, 4), start(model, phrase)
    theirs = learn_words(problem, prompts, context, EPOCHS, 128, backward=backward)
    options = {"teacher": "a photo of a {}, a type of texture.", "epochs": EPOCHS}
    return problem.ours("kgcoop", **options), to_numpy(theirs)


def prograd(problem: TowerProblem) -> Pair:
    """Without what goes against the teacher's loss. The comma is a token but not a word: "a" stays fixed."""
    phrase, model = "a type of pet, a photo of a", problem.model
    tokens = tokenize([f"{phrase} {name}." for name in CLASSES])
    teacher = normalize(text_features(model, tokens, model.token_embedding(tokens)), dim=1)

    def backward(loss: Tensor, rows: Tensor, z: Tensor, context: Tensor) -> None:
        soft = (SCALE * z @ teacher.T).softmax(dim=1)
        apart = -(soft * (SCALE * z @ rows.T).log_softmax(dim=1)).sum(dim=1).mean()
        (general,) = torch.autograd.grad(apart, context, retain_graph=True)
        (own,) = torch.autograd.grad(loss, context)
        direction = general / general.norm()
        along = (own * direction).sum()
        context.grad = own - along * direction if along < 0 else own

    words = start(model, phrase)
    missing = 16 - len(words)
    prompts = Prompts(model, f"{' '.join('X' * missing)} {phrase}", 16)
    context = torch.cat([torch.zeros(missing, words.shape[1]), words])
    theirs = learn_words(problem, prompts, context, EPOCHS, backward=backward)
    options = {"init": phrase, "teacher": phrase + " {}.", "epochs": EPOCHS}
    return problem.ours("prograd", **options), to_numpy(theirs)


def cocoop(problem: TowerProblem) -> Pair:
    """Words shifted by a small net of the image's embedding, batches of one image; two epochs."""
    phrase, model = "a photo of a", problem.model
    with torch.random.fork_rng([]):
        torch.manual_seed(SEED)
        net = nn.Sequential(nn.Linear(20, 1), nn.ReLU(), nn.Linear(1, 24))  # D, D / 16 and De
    prompts, context = Prompts(model, phrase, 4), start(model, phrase).requires_grad_()
    views, y = torch.stack([problem.images(view) for view in problem.crops]), problem.labels

    def logits(z: Tensor) -> Tensor:
        return torch.stack([SCALE * each @ prompts.rows(context + net(each)).T for each in z])

    def backward(batch: Tensor, epoch: int) -> None:
        cross_entropy(logits(views[epoch % len(views), batch]), y[batch]).backward()

    dassl([context, *net.parameters()], backward, problem.task.n, 0.002, 2, 1)
    return problem.ours("cocoop", epochs=2), to_numpy(logits(problem.images(problem.pixels)))


def plot(problem: TowerProblem, pooled: bool = False) -> Pair:
    """Four prompts of sixteen words, matched to places by Sinkhorn's iterations; batches of 128."""
    model, y, crops = problem.model, problem.labels, problem.crops_of(0.08)
    prompts, width = Prompts(model, " ".join("X" * 16), 16), model.token_embedding.embedding_dim
    contexts = 0.02 * torch.randn(4, 16, width, generator=torch.Generator().manual_seed(SEED))
    contexts.requires_grad_()

    def logits(found: Tensor) -> Tensor:  # [B, 1 + L, D]
        texts = torch.stack([prompts.features(context) for context in contexts])  # [N, K, D]
        whole, places = normalize(found[:, 0], dim=1), normalize(found[:, 1:], dim=2)
        size, count = places.shape[:2]
        similar = torch.einsum("bmd,nkd->mnbk", places, normalize(texts, dim=2))
        similar = similar.reshape(count, 4, -1).permute(2, 0, 1)
        with torch.no_grad():
            kernel = torch.exp(-(1 - similar) / 0.1)
            r, c = torch.ones(len(kernel), count), torch.ones(len(kernel), 4)
            for _ in range(100):
                before = r
                r = 1 / count / (kernel @ c[:, :, None])[:, :, 0]
                c = 1 / 4 / (kernel.mT @ r[:, :, None])[:, :, 0]
                if (r - before).abs().mean() < 1e-2:
                    break
            plan = r[:, :, None] * c[:, None] * kernel
        scores = SCALE * (plan * similar).sum(dim=(1, 2)).reshape(size, -1)
        return scores + SCALE * whole @ normalize(texts.mean(dim=0), dim=1).T if pooled else scores

    def backward(batch: Tensor, epoch: int) -> None:
        with torch.no_grad():
            found = regions(model, problem.normalised(crops(batch, epoch)))
        cross_entropy(logits(found), y[batch]).backward()

    dassl([contexts], backward, problem.task.n, 0.002, EPOCHS // 2, 128)
    with torch.no_grad():
        parts = problem.normalised(problem.pixels).split(
            32
        )  # as ours: the stopping rule looks at a whole batch
        theirs = torch.cat([logits(regions(model, part)) for part in parts])
    options = {"pooled": pooled, "view_area": 0.08, "epochs": EPOCHS // 2}
    return problem.ours("plot", **options), to_numpy(theirs)


def maple(problem: TowerProblem, depth: int = 3) -> Pair:
    """Two words and their images in both towers, deeper ones in the next blocks; batches of 4, 5 epochs."""
    model, y, crops = problem.model, problem.labels, problem.crops_of(0.08)
    first = start(model, "a photo of a")[:2]
    made = Coupling.start(first, depth, problem.encoder.towers(), False, SEED).state_dict()
    state = {name: p.clone().requires_grad_() for name, p in made.items()}
    prompts, words = Prompts(model, "a photo of a", 2), [state[f"prompts.{j}"] for j in range(depth)]

    def logits(pixels: Array) -> Tensor:
        tokens = [words[j] @ state[f"maps.{j}.weight"].T + state[f"maps.{j}.bias"] for j in range(depth)]

        def into_text(j: int, x: Tensor) -> Tensor:
            if not 0 < j < depth:
                return x
            return torch.cat([x[:, :1], words[j].expand(len(x), -1, -1), x[:, 3:]], dim=1)

        def into_image(j: int, x: Tensor) -> Tensor:
            return torch.cat([x[:, :-2], tokens[j].expand(len(x), -1, -1)], dim=1) if 0 < j < depth else x

        rows = normalize(prompts.features(words[0], into_text), dim=1)
        images = image_features(model, problem.normalised(pixels), tokens[0], into_image)
        return SCALE * normalize(images, dim=1) @ rows.T

    def backward(batch: Tensor, epoch: int) -> None:
        cross_entropy(logits(crops(batch, epoch)), y[batch]).backward()

    dassl(list(state.values()), backward, problem.task.n, 0.0035, 5, 4)
    return problem.ours("maple", depth=depth), to_numpy(logits(problem.pixels))


def clip_lora(problem: TowerProblem) -> Pair:
    """AdamW on the factors of query, key and value of both towers, a cosine by steps; five steps a shot."""
    model, y, crops = problem.model, problem.labels, problem.crops_of(0.08)
    fitted = methods.create("clip_lora", seed=SEED, epochs=0).fit(problem.task)
    state = fitted.encoder.towers().model.state_dict()  # type: ignore[attr-defined]
    factors = {name: p.clone().requires_grad_() for name, p in state.items() if ".lora_" in name}

    def changes(tower: str) -> Changes:
        names = [f"{tower}transformer.resblocks.{i}.attn" for i in range(3)]
        pairs = [[f"{n}.{part}_proj.lora_{{}}.default.weight" for part in "qkv"] for n in names]
        return [[(factors[key.format("A")], factors[key.format("B")]) for key in own] for own in pairs]

    tokens = tokenize([f"a photo of a {name}." for name in CLASSES])
    words, total = model.token_embedding(tokens), 5 * int(problem.task.shots)
    optimizer = torch.optim.AdamW(factors.values(), lr=2e-4, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total, eta_min=1e-6)
    epoch = count = 0
    with torch.random.fork_rng([]):
        while count < total:
            for batch in orders(problem.task.n, epoch, 32, drop_last=False):
                if count == total:
                    break
                optimizer.zero_grad()
                torch.manual_seed(SEED + 1_000_003 * count)  # of dropout
                pixels = problem.normalised(crops(batch, epoch))
                images = image_features(model, pixels, changes=changes("visual."))
                texts = text_features(model, tokens, words, changes=changes(""))
                logits = SCALE * normalize(images, dim=1) @ normalize(texts, dim=1).T
                cross_entropy(logits, y[batch]).backward()
                optimizer.step()
                schedule.step()
                count += 1
            epoch += 1
    merged = copy.deepcopy(model)
    with torch.no_grad():
        for tower, blocks in (("visual.", merged.visual.transformer), ("", merged.transformer)):
            for block, change in zip(blocks.resblocks, changes(tower), strict=True):
                block.attn.in_proj_weight += torch.cat([2**-0.5 * b @ a for a, b in change])
        images = image_features(merged, problem.normalised(problem.pixels))
        texts = text_features(merged, tokens, words)
        theirs = SCALE * normalize(images, dim=1) @ normalize(texts, dim=1).T
    return problem.ours("clip_lora", steps_per_shot=5), to_numpy(theirs)


def fine_tuning(problem: TowerProblem, name: str, chosen: Callable[[str, nn.Module], bool]) -> Pair:
    """Adam with eps 1e-4 on some parameters, a cosine by steps, partial batches too; three epochs."""
    model, y, crops = copy.deepcopy(problem.model), problem.labels, problem.crops_of(0.5)
    parameters = [
        p.requires_grad_()
        for path, module in model.named_modules()
        for key, p in module.named_parameters(recurse=False)
        if chosen(f"{path}.{key}" if path else key, module)
    ]
    tokens = tokenize([f"a photo of a {each}." for each in CLASSES])
    size = 32 if name == "norm_tuning" else 16

    def logits(pixels: Array) -> Tensor:
        texts = text_features(model, tokens, model.token_embedding(tokens))
        images = image_features(model, problem.normalised(pixels))
        return SCALE * normalize(images, dim=1) @ normalize(texts, dim=1).T

    steps = 3 * -(-problem.task.n // size)
    optimizer = torch.optim.Adam(parameters, lr=1e-3, eps=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(3):
        for batch in orders(problem.task.n, epoch, size, drop_last=False):
            optimizer.zero_grad()
            cross_entropy(logits(crops(batch, epoch)), y[batch]).backward()
            optimizer.step()
            schedule.step()
    return problem.ours(name, lr=1e-3, epochs=3), to_numpy(logits(problem.pixels))


def tpt(problem: TowerProblem, learned: bool = False) -> Pair:
    """One step of AdamW on the words for each of six images, on its 6 surest views of 64."""
    model, rng = problem.model, random.Random(0)
    preprocess = replace(problem.encoder.preprocess, view_area=0.08, view_interpolation="bilinear")
    pictures = problem.validation.images[:6]
    views = np.stack(
        [[preprocess.centre(p), *(preprocess.augment(p, rng) for _ in range(63))] for p in pictures]
    )
    words, begin = start(model, "a photo of a"), methods.create("zero_shot").fit(problem.task)
    prompts = Prompts(model, "a photo of a", 4)
    if learned:  # TPT + CoOp
        begin = methods.create("coop", contexts=4, epochs=5, seed=SEED).fit(problem.task)
        words, prompts = torch.tensor(begin.context), Prompts(model, "X X X X", 4)
    theirs = []
    for each in views:
        z = problem.images(each)
        context = words.clone().requires_grad_()
        output = SCALE * z @ prompts.rows(context).T
        entropy = -(output.softmax(1) * output.log_softmax(1)).sum(1)
        sure = output[entropy.argsort()[:6]].log_softmax(dim=1)
        mean = sure.logsumexp(dim=0) - math.log(len(sure))
        optimizer = torch.optim.AdamW([context], lr=5e-3)
        (-(mean * mean.exp()).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            theirs.append(SCALE * z[0] @ prompts.rows(context).T)
    x = np.stack([problem.encoder.encode(view) for view in views.swapaxes(0, 1)])
    return TPT().logits(x, begin, problem.encoder), to_numpy(torch.stack(theirs))


def _norm(_: str, module: nn.Module) -> bool:
    return isinstance(module, nn.LayerNorm)


def _chosen(name: str, start: str) -> Callable[[TowerProblem], Pair]:
    return lambda problem: fine_tuning(problem, name, lambda path, _: path.startswith(start))


# By line: the kind of tower, and the computation.
REFERENCES: dict[str, tuple[str, Callable[[TowerProblem], Pair]]] = {
    "coop": ("vit", coop),
    "coop, phrase": ("vit", coop_phrase),
    "coop, lp++": ("vit", coop_of_lp),
    "kgcoop": ("vit", kgcoop),
    "prograd": ("vit", prograd),
    "cocoop": ("vit", cocoop),
    "plot": ("resnet", plot),
    "plot, pooled": ("resnet", partial(plot, pooled=True)),
    "maple": ("vit", maple),
    "maple, shallow": ("vit", partial(maple, depth=1)),
    "clip_lora": ("vit", clip_lora),
    "full": ("vit", _chosen("full", "visual.")),
    "last_layer": ("vit", _chosen("last_layer", "visual.transformer.resblocks.2.")),
    "norm_tuning": ("vit", partial(fine_tuning, name="norm_tuning", chosen=_norm)),
    "tpt": ("vit", tpt),
    "tpt, coop": ("vit", partial(tpt, learned=True)),
}


def tower_lines(names: Collection[str]) -> Iterator[Line]:
    """A line for each of these, over 1, 4 and 16 shots."""
    made = {kind: list(problems(kind)) for kind in {REFERENCES[name][0] for name in names}}
    for name in names:
        started = time.perf_counter()
        kind, pair = REFERENCES[name]
        apart = [differences(*pair(problem), problem.y) for problem in made[kind]]
        largest = {key: max(each[key] for each in apart) for key in apart[0]}
        yield Line(name, STEPS, largest, time.perf_counter() - started)
