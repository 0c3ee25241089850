"""Receipts: what an answer was drawn with, so that anyone can draw it again, on a CPU too.

    python -m isoc replay receipt.json --model model.cubin --weights DIR

A receipt names the contract's fingerprint and the weights' digest: whoever has a module and
weights that agree with these gets the same tokens and the same bits of their log-probabilities.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence as Many

import numpy as np

from . import _native
from .errors import Status

if TYPE_CHECKING:
    from .engine import Engine
    from .model import Model
    from .module import Module

FORMAT = 1


class Receipt(NamedTuple):
    """Of one answer; token i of it was drawn at ``position`` len(prompt) - 1 + i of the sequence.

    Attributes:
        contract: name and version.
        fingerprint, weights: digests, hexadecimal.
        request: the fields of :class:`isoc.engine.Request`.
        tokens: what was drawn.
        logprobs: the bits of each f32, hexadecimal.
    """

    contract: str
    fingerprint: str
    weights: str
    request: dict[str, Any]
    tokens: list[int]
    logprobs: list[str]

    @classmethod
    def of(cls, module: Module, model: Model, request: Mapping[str, Any], tokens: Many[int],
           logprobs: np.ndarray[Any, Any]) -> "Receipt":
        """Of what an engine drew."""
        fields = {name: [int(i) for i in value] if name in ("prompt", "stop") else value
                  for name, value in request.items()}
        return cls(f"{module.name} version {module.version}", module.fingerprint.hex(),
                   model.weights.hex(), fields, [int(t) for t in tokens], _bits(logprobs))

    def text(self) -> str:
        """As JSON."""
        return json.dumps({"format": FORMAT, **self._asdict()}, indent=1) + "\n"

    @classmethod
    def read(cls, text: str) -> "Receipt":
        """From JSON.

        Raises:
            ValueError: it is no receipt, or one of another format.
        """
        try:
            fields = json.loads(text)
            if fields.pop("format") != FORMAT:
                raise ValueError("the receipt has another format")
            return cls(**fields)
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as problem:
            raise ValueError(f"this is no receipt: {problem}") from problem

    def replay(self, engine: Engine) -> list[str]:
        """Draws again, and says what differs: nothing, where the promise holds.

        Raises:
            IsoError: FINGERPRINT, WEIGHTS where the engine runs something else.
        """
        engine.module.expect(self.fingerprint)
        if engine.model.weights.hex() != self.weights:
            raise _native.error(Status.WEIGHTS,
                                f"the receipt is of weights {self.weights[:16]}, the engine has "
                                f"{engine.model.weights.hex()[:16]}")
        from .engine import Request

        again = engine.generate([Request(**self.request)])[0]
        bits = _bits(again.logprobs)
        return [f"token {i}: {a} with {x}, the receipt says {b} with {y}"
                for i, (a, b, x, y) in enumerate(zip(again.tokens, self.tokens, bits,
                                                     self.logprobs))
                if (a, x) != (b, y)] + _lengths(again.tokens, self.tokens)


def _bits(logprobs: np.ndarray[Any, Any]) -> list[str]:
    return [f"{int(bits):08x}" for bits in np.asarray(logprobs, np.float32).view(np.uint32)]


def _lengths(a: Many[int], b: Many[int]) -> list[str]:
    return [] if len(a) == len(b) else [f"{len(a)} tokens, the receipt says {len(b)}"]
