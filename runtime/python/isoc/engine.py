"""The sampler: continuous batching over a model's paged cache, with a receipt for every token.

    engine = isoc.Engine(module, "SmolLM2-135M")
    for answer in engine.generate(prompts, tokens=64, temperature=0.8, seed=7):
        print(answer.tokens, answer.logprobs)

What a request gets depends on its prompt, its parameters and its seed, not on the batch: draws are
keyed by (seed, stream, position), and no row's bits depend on its neighbours. Chunks of prompts and
decoded rows share steps; pages are taken when a request begins and given back when it ends.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any, Iterable, NamedTuple, Sequence as Many

import numpy as np

from . import _native
from .errors import Status
from .group import Group
from .model import Model, Sequence
from .module import Module
from .receipt import Receipt

# What a model must have for tokens to be drawn: the names that isoc's own contracts use.
_DRAWS = {"temperature": 1.0, "seed": 0, "stream": 0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
_OUTPUTS = ("token", "token_logprob")


class Request(NamedTuple):
    """What is asked for one prompt.

    Attributes:
        prompt: token ids, at least one.
        tokens: how many to draw at most.
        seed: of the request's draws; ``stream`` tells the samples of one prompt apart.
        temperature: what logits are divided by, above 0. Greedy is ``top_k`` 1.
        top_k, top_p, min_p: limits, as the contract's ``draw`` defines them; 0, 1, 0: none.
        stop: ids that end the answer, which keeps them.
    """

    prompt: Many[int]
    tokens: int = 16
    seed: int = 0
    stream: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop: Many[int] = ()


class Answer(NamedTuple):
    """Tokens drawn for a request, the log-probability of each (f32, what a trainer's pass over the
    whole sequence gives, in every bit), and a receipt by which anyone can draw them again."""

    request: Request
    tokens: list[int]
    logprobs: np.ndarray[Any, Any]
    receipt: Receipt


class _Running:
    def __init__(self, index: int, request: Request, pages: list[int]) -> None:
        self.index = index
        self.request = request
        self.pages = np.array(pages, np.int32)
        self.ids = [int(i) for i in request.prompt]
        self.logprobs: list[Any] = []
        self.computed = 0  # rows in the cache

    def done(self) -> bool:
        drawn = len(self.logprobs)
        return drawn >= self.request.tokens or bool(drawn and self.ids[-1] in self.request.stop)


class Engine:
    """A model that answers requests. One thread at a time may use it.

    Attributes:
        model: its model.
        module: whose kernels it runs.
    """

    def __init__(self, module: Module, weights: str | os.PathLike[str], *,
                 layout: str | None = None, group: Group | None = None, at_once: int = 64,
                 max_rows: int = 2048, max_position: int = 4096, page: int = 16,
                 pages: int | None = None, graph_rows: int = 64) -> None:
        """
        Args:
            module, weights, layout, group: as of :class:`Model`. In a group every rank makes the
                same calls; all of them get the answers.
            at_once: requests that are answered side by side at most.
            max_rows: of a step: decoded rows first, then chunks of prompts.
            max_position: prompt and answer together.
            page, pages: of the cache; None: what ``at_once`` requests of that length need.
            graph_rows: steps of at most so many rows are CUDA graphs; nothing on the CPU.

        Raises:
            IsoError: what :class:`Model` raises; UNSUPPORTED for a model that draws no tokens.
        """
        per = -(-max_position // page)
        sizes = Model.sizes(module, layout=layout, max_rows=max(max_rows, at_once),
                            max_sequences=at_once, max_position=max_position, page=page)
        self._ranks, self._positions = sizes.page_ranks, sizes.page_positions
        self.model = Model(module, weights, layout=layout, group=group,
                           max_rows=max(max_rows, at_once), max_sequences=at_once,
                           max_position=max_position, page=page,
                           pages=per * at_once if pages is None else pages,
                           graph_rows=graph_rows if module.device != "cpu" else 0)
        self.module = module
        self._free = [list(range(rank, self.model.pages, self._ranks))[::-1]
                      for rank in range(self._ranks)]
        missing = [name for name in ("ids", *_DRAWS) if name not in self.model.inputs]
        missing += [name for name in _OUTPUTS if name not in self.model.outputs]
        if missing:
            self.model.close()
            raise _native.error(Status.UNSUPPORTED, f"the model of {module.name} has no "
                                f"{', '.join(missing)}: an engine draws by these names")

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives back the model's memory."""
        self.model.close()

    def generate(self, prompts: Iterable[Many[int] | Request], **parameters: Any) -> list[Answer]:
        """Answers requests, in the order given.

        Args:
            prompts: :class:`Request` or token ids; for the latter
            parameters: are the other fields of the request. Prompts that are equal and have equal
                seeds get equal answers: give ``stream`` to tell them apart.

        Raises:
            IsoError: INVALID_ARGUMENT for an empty prompt; STEP_ROWS for one that is too long;
                PAGES where the cache is too small for a single request; what a step raises.
        """
        requests = [p if isinstance(p, Request) else Request(p, **parameters) for p in prompts]
        for request in requests:
            self._refuse(request)
        waiting = deque(enumerate(requests))
        running: list[_Running] = []
        answers: list[Answer | None] = [None] * len(requests)
        try:
            while waiting or running:
                self._let_in(waiting, running)
                self._step(running)
                for r in [r for r in running if r.done()]:
                    answers[r.index] = self._answer(r)
                    running.remove(r)
                    self._give(r.pages.tolist())
        finally:
            for r in running:
                self._give(r.pages.tolist())
        return [a for a in answers if a is not None]

    # ---- requests ---------------------------------------------------------------------------

    def _refuse(self, request: Request) -> None:
        length = len(request.prompt) + request.tokens
        if not len(request.prompt) or request.tokens < 1:
            raise _native.error(Status.INVALID_ARGUMENT,
                                "a request has a prompt of at least one token, and draws one")
        if length > self.model.max_position:
            raise _native.error(Status.STEP_ROWS,
                                f"a prompt of {len(request.prompt)} and {request.tokens} tokens "
                                f"are more than the {self.model.max_position} positions of the "
                                "engine (max_position=)")
        if self._lists(self._need(request), [len(range(rank, self.model.pages, self._ranks))
                                             for rank in range(self._ranks)]) is None:
            raise _native.error(Status.PAGES, f"{length} positions need {self._need(request)} "
                                f"pages, the cache has {self.model.pages} (pages=)")

    def _need(self, request: Request) -> int:
        return -(-(len(request.prompt) + request.tokens) // self.model.page)

    def _let_in(self, waiting: deque[tuple[int, Request]], running: list[_Running]) -> None:
        """All pages that a request can come to need, at once: none runs out on the way."""
        while waiting and len(running) < self.model.max_sequences:
            index, request = waiting[0]
            lists = self._lists(self._need(request), [len(free) for free in self._free])
            if lists is None:
                return
            waiting.popleft()
            running.append(_Running(index, request, [self._free[i].pop() for i in lists]))

    def _lists(self, need: int, free: list[int]) -> list[int] | None:
        """From which rank's free pages those of a sequence come, one after another: it begins where
        most are free. None: they do not go so far."""
        first = free.index(max(free))
        lists = [(first + i * self.model.page // self._positions) % self._ranks
                 for i in range(need)]
        return lists if all(lists.count(i) <= n for i, n in enumerate(free)) else None

    def _give(self, pages: list[int]) -> None:
        for page in pages:
            self._free[page % self._ranks].append(page)

    def _answer(self, r: _Running) -> Answer:
        tokens = r.ids[len(r.request.prompt):]
        logprobs = np.array(r.logprobs, np.float32)
        receipt = Receipt.of(self.module, self.model, r.request._asdict(), tokens, logprobs)
        return Answer(r.request, tokens, logprobs, receipt)

    # ---- steps ------------------------------------------------------------------------------

    def _shares(self, running: list[_Running]) -> list[tuple[_Running, int]]:
        """How many rows of each: those that decode first, then prompts as far as rows go."""
        left = self.model.max_rows
        shares = []
        for r in sorted(running, key=lambda r: len(r.ids) - r.computed > 1):
            n = min(len(r.ids) - r.computed, left)
            if n:
                shares.append((r, n))
                left -= n
        return shares

    def _step(self, running: list[_Running]) -> None:
        shares = self._shares(running)
        columns: dict[str, list[Any]] = {name: [] for name in ("ids", *_DRAWS)}
        sequences, wanted, drawing = [], [], []
        for r, n in shares:
            sequences.append(Sequence(n, r.computed, r.pages, r.index))
            columns["ids"] += r.ids[r.computed:r.computed + n]
            for name in _DRAWS:
                columns[name] += [getattr(r.request, name)] * n
            r.computed += n
            if r.computed == len(r.ids):
                wanted.append(len(columns["ids"]) - 1)
                drawing.append(r)
        out = self.model.step(sequences, columns, _OUTPUTS if wanted else (),
                              wanted=wanted if wanted else [])
        for i, r in enumerate(drawing):
            r.ids.append(int(out["token"][i]))
            r.logprobs.append(out["token_logprob"][i])

    # ---- scoring ----------------------------------------------------------------------------

    def score(self, ids: Many[int], *, temperature: float = 1.0) -> np.ndarray[Any, Any]:
        """Log-probabilities of ids[1:], each given what is before it: a trainer's packed pass.

        Raises:
            IsoError: STEP_ROWS for more ids than a step has rows.
        """
        n = len(ids)
        columns = {"ids": ids, "targets": [*ids[1:], 0], "temperature": [temperature] * n}
        out = self.model.step([Sequence(n)], columns, ["logprob"], wanted=range(n - 1))
        return out["logprob"]
