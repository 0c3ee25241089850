"""Hugging Face models whose forward runs a contract's kernels; the backward stays PyTorch's.

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    isoc.transformers.patch(model, isoc.load("model.cubin"))
    loss = -isoc.transformers.logprobs(model, ids, attention_mask=mask).sum()   # a sampler's bits
    loss.backward()

The contract's `model` says which op takes which weight, by the checkpoint's names; the model's own
parameters are used in place. Padding is left out, so that a padded batch, a packed one and a
sampler's steps give the same bits.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from . import _native
from .errors import Status
from .module import Module
from .references import formulas as _formulas
from .registry import register_attention
from .torch import function

__all__ = ["logprobs", "patch", "register_attention", "unpatch"]

_APART = 0.2  # of a token's logits' norm
_patches = itertools.count()  # operators' names are made once
_BIT_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


class _Rows(NamedTuple):
    """A batch without its padding. All int32 but ``at``: where each row was."""

    positions: torch.Tensor
    sequences: torch.Tensor
    starts: torch.Tensor
    at: torch.Tensor


class _Program:
    """The statements of a contract's model over the parameters of a module of torch's."""

    def __init__(self, module: Module, model: torch.nn.Module, refs: dict[str, Any]) -> None:
        manifest = module.manifest()
        if manifest["model"] is None:
            raise _native.error(Status.NO_MODEL, f"contract {module.name}")
        self.module, self.manifest, self.said = module, manifest, manifest["model"]
        self.values = self.said["values"]
        self.model = model
        self._needed = {name: self._needed_for(name) for name in ("logits", "logprob")}
        self._refuse_unbound()
        self._ops = {i: self._operator(i, refs) for i in self._used()}
        self._tables: dict[torch.device, list[torch.Tensor]] = {}
        self.caches = {cache["as"]: cache["of"] for cache in self.said["caches"]}

    # ---- what is there ------------------------------------------------------------------------

    def _needed_for(self, output: str) -> set[int]:
        """The statements that an output needs; what a repeat carries is needed too."""
        outputs = {o["name"]: o["value"] for o in self.said["outputs"]}
        if output not in outputs:
            raise _native.error(Status.UNSUPPORTED,
                                f"the model of {self.module.name} has no output {output}")
        wanted, statements = {outputs[output]}, set()
        as_of = {cache["as"]: cache["of"] for cache in self.said["caches"]}
        grown = True
        while grown:
            before = len(wanted)
            for value in list(wanted):
                carry = self.values[value]["carry"]
                wanted |= {carry} if carry >= 0 else set()
                wanted |= {as_of[value]} if value in as_of else set()
            for i, statement in enumerate(self.said["statements"]):
                if wanted & set(statement["results"]):
                    statements.add(i)
                    wanted |= {a["value"] for a in statement["arguments"] if "value" in a}
            grown = len(wanted) > before
        return statements

    def _used(self) -> set[int]:
        return {self.said["statements"][i]["op"] for some in self._needed.values() for i in some}

    def _turns(self, repeat: int) -> int:
        return self.said["repeats"][repeat]["count"] if repeat >= 0 else 1

    def _weights(self) -> Iterator[tuple[str, Any]]:
        """Names in the checkpoint and what the contract says of them."""
        for i in sorted(set().union(*self._needed.values())):
            statement = self.said["statements"][i]
            for argument in statement["arguments"]:
                if "weight" in argument:
                    weight = self.said["weights"][argument["weight"]]
                    if "order" in weight:
                        raise _native.error(Status.UNSUPPORTED, f"{weight['name']} is stored with "
                                            "its axes in another order than the kernels read")
                    for turn in range(self._turns(statement["repeat"])):
                        yield _named(weight["name"], turn), weight["tensor"]

    def _refuse_unbound(self) -> None:
        """Every weight has a parameter of its shape and dtype, every parameter an op."""
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        bound = set()
        for name, tensor in self._weights():
            found = parameters.get(name)
            if found is None:
                raise _native.error(Status.BAD_WEIGHT, f"the contract reads {name}, "
                                    f"{type(self.model).__name__} has no such parameter")
            shape = self._shape(tensor)
            if found.numel() != int(np.prod(shape)) or found.dtype != _BIT_TYPES[tensor["dtype"]]:
                raise _native.error(Status.BAD_WEIGHT,
                                    f"{name} is {found.dtype} of {tuple(found.shape)}, the "
                                    f"contract says {tensor['dtype']} of {shape}")
            bound.add(id(found))
        left = [name for name, p in parameters.items() if id(p) not in bound]
        if left:
            raise _native.error(Status.UNSUPPORTED,
                                f"the contract does not cover {', '.join(left[:4])}"
                                + (f" and {len(left) - 4} more" if len(left) > 4 else "")
                                + ": the patched model would leave it out")

    def _shape(self, tensor: Any) -> tuple[int, ...]:
        atoms = self.manifest["atoms"]
        return tuple(int(np.prod([atoms[a]["stored"] for a in axis["atoms"]]))
                     for axis in tensor["axes"])

    def _operator(self, op: int, refs: dict[str, Any]) -> Callable[..., Any]:
        name = self.manifest["ops"][op]["name"]
        if name not in refs:
            raise _native.error(Status.UNSUPPORTED, f"op {name} has no formula in PyTorch to take "
                                "gradients of: pass references={...}")
        made = f"{self.module.name}_{name}_{next(_patches)}"
        return function(self.module.ops[name], refs[name], name=re.sub(r"\W", "_", made))

    def tables(self, device: torch.device, positions: int) -> list[torch.Tensor]:
        """cos and sin of each table, for at least so many positions."""
        made = self._tables.get(device, [])
        if made and made[0].shape[0] >= positions:
            return made
        made, count = [], max(positions, 2048)
        for index, table in enumerate(self.said["tables"]):
            tensor = self.values[table["values"][0]]
            shape = (count, int(np.prod(self._shape({"axes": tensor["axes"][1:]}))))
            pair = [torch.empty(shape, dtype=_BIT_TYPES[tensor["dtype"]]) for _ in range(2)]
            _native.check(_native.lib.iso_model_table(
                self.module._alive(), index, count, pair[0].data_ptr(), pair[1].data_ptr(),
                pair[0].numel() * pair[0].element_size()))
            made += [t.to(device) for t in pair]
        self._tables[device] = made
        return made

    # ---- running ------------------------------------------------------------------------------

    def run(self, output: str, inputs: dict[str, torch.Tensor], rows: _Rows,
            save: bool) -> torch.Tensor:
        """An output of the model; with ``save`` a repeat's turn keeps what it was given alone."""
        have: dict[int, torch.Tensor] = {}
        for value in self.said["inputs"]:
            if self.values[value]["name"] in inputs:
                have[value] = inputs[self.values[value]["name"]]
        tables = self.tables(rows.positions.device, int(rows.positions.max()) + 1)
        flat = [v for table in self.said["tables"] for v in table["values"]]
        have.update(zip(flat, tables))
        needed, done = self._needed[output], 0
        for index, repeat in enumerate(self.said["repeats"]):
            self._span(range(done, repeat["first"]), needed, 0, have, rows)
            body = range(repeat["first"], repeat["end"])
            for turn in range(repeat["count"]):
                self._turn(index, body, needed, turn, have, rows, save)
            done = repeat["end"]
        self._span(range(done, len(self.said["statements"])), needed, 0, have, rows)
        return have[next(o["value"] for o in self.said["outputs"] if o["name"] == output)]

    def _turn(self, repeat: int, body: range, needed: set[int], turn: int,
              have: dict[int, torch.Tensor], rows: _Rows, save: bool) -> None:
        """One turn. What the one before left takes the place of what it was made from."""
        carried = [(i, v["carry"]) for i, v in enumerate(self.values)
                   if v["carry"] >= 0 and i in have]
        given = {i: have[i] for i, _ in carried}
        fixed = {i: t for i, t in have.items() if i not in given}

        def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inside = {**fixed, **dict(zip(given, tensors))}
            self._span(body, needed, turn, inside, rows)
            return tuple(inside[carry] for _, carry in carried)

        outs = (checkpoint(run, *given.values(), use_reentrant=False) if save
                else run(*given.values()))
        last = turn == self.said["repeats"][repeat]["count"] - 1
        for (value, carry), tensor in zip(carried, outs):
            have[carry if last else value] = tensor

    def _span(self, span: range, needed: set[int], turn: int, have: dict[int, torch.Tensor],
              rows: _Rows) -> None:
        for i in span:
            if i not in needed:
                continue
            statement = self.said["statements"][i]
            arguments = [self._argument(a, turn, have) for a in statement["arguments"]]
            made = self._ops[statement["op"]](*arguments, **self._coordinates(statement, rows))
            for value, tensor in zip(statement["results"],
                                     made if isinstance(made, (tuple, list)) else (made,)):
                have[value] = tensor

    def _argument(self, argument: Any, turn: int, have: dict[int, torch.Tensor]) -> torch.Tensor:
        if "weight" in argument:
            weight = self.said["weights"][argument["weight"]]
            # By name at every call: wrappers such as FSDP put other tensors in their place.
            whole = self.model.get_parameter(_named(weight["name"], turn))
            return whole.view(self._shape(weight["tensor"]))
        value = argument["value"]
        # All keys that there are are the rows' own, one sequence behind the other.
        return have[self.caches[value]].unsqueeze(0) if value in self.caches else have[value]

    def _coordinates(self, statement: Any, rows: _Rows) -> dict[str, torch.Tensor]:
        values = [a["value"] for a in statement["arguments"] if "value" in a]
        if any(value in self.caches for value in values):
            return {"positions": rows.positions, "sequences": rows.sequences,
                    "starts": rows.starts}
        tables = {v for table in self.said["tables"] for v in table["values"]}
        return {"positions": rows.positions} if tables & set(values) else {}


def _named(name: str, turn: int) -> str:
    """A weight's name in a turn: "{layer}" is its index, "{4*layer+3}" every fourth from 3."""
    def index(found: re.Match[str]) -> str:
        times, plus = found[1], found[2]
        return str(turn * int(times[:-1] if times else 1) + int(plus[1:] if plus else 0))

    return re.sub(r"\{(\d+\*)?\w+?(\+\d+)?\}", index, name)


# ---- patching -------------------------------------------------------------------------------


def patch(model: Any, module: Module, *, references: dict[str, Any] | None = None) -> None:
    """Makes a causal language model's forward run the contract's model.

    Args:
        model: of transformers (Llama, Qwen2, Qwen3, Mistral, SmolLM, ... as far as the contract's
            weights have its parameters' names), on the module's device.
        module: of a contract with a `model` whose outputs are named logits and logprob.
        references: formulas in PyTorch by op, for gradients, beside :mod:`isoc.references`.

    Wrap it for FSDP, whole, or DDP after that, not before.

    Raises:
        IsoError: NO_MODEL; BAD_WEIGHT where a weight is not the model's parameter, or has another
            shape or dtype; UNSUPPORTED where a parameter is in no op of the contract, an op has no
            formula, or the contract computes another function than the model (its logits of a few
            tokens are far from the model's own).
        ValueError: the model is patched already.
    """
    if hasattr(model, "_isoc"):
        raise ValueError("the model is patched already: unpatch it first")
    eps = float(getattr(model.config, "rms_norm_eps", 1e-6))
    known = {**_formulas(eps), **(references or {})}
    program = _Program(module, model, known)
    ids = _everyday_tokens(model).unsqueeze(0)
    with torch.no_grad():
        stock = model(input_ids=ids).logits.float()
    model._isoc, model._isoc_forward = program, model.forward
    model.forward = lambda *args, **named: _forward(model, *args, **named)
    try:
        with torch.no_grad():
            _refuse_another(module, stock, model(input_ids=ids).logits)
    except BaseException:
        unpatch(model)
        raise


def _everyday_tokens(model: Any) -> torch.Tensor:
    """From all over the vocabulary: the first ones are control tokens, after which a trained
    model's own roundings move its logits as far as another function would."""
    device = next(model.parameters()).device
    return torch.linspace(0, model.config.vocab_size - 1, 18, device=device)[1:-1].int()


def _refuse_another(module: Module, stock: torch.Tensor, own: torch.Tensor) -> None:
    """Most tokens' roundings differ by a few percent at most; another theta, mask or scale by far
    more."""
    apart = float(((own - stock).norm(dim=-1) / stock.norm(dim=-1)).median())
    if not apart < _APART:
        raise _native.error(Status.UNSUPPORTED,
                            f"contract {module.name} computes another function than the model: "
                            f"its logits of 16 tokens are {apart:.0%} away; compare its constants "
                            "with the model's config (isoc import writes a contract from it)")


def unpatch(model: Any) -> None:
    """Restores the model's own forward. A model that is not patched is left alone."""
    if hasattr(model, "_isoc"):
        model.forward = model._isoc_forward
        del model._isoc, model._isoc_forward


def logprobs(model: Any, input_ids: torch.Tensor, targets: torch.Tensor | None = None, *,
             attention_mask: torch.Tensor | None = None,
             position_ids: torch.Tensor | None = None,
             temperature: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Log-probabilities of tokens, f32, by the contract's own op: what a sampler returned for them.

    Args:
        model: a patched one.
        input_ids: int [batch, length].
        targets: int [batch, length], the token after each; None: the ids moved by one, and then
            the result has a column less.
        attention_mask: [batch, length], 0 where there is padding.
        position_ids: [batch, length], where several sequences are packed into a row of the batch:
            one begins wherever they are 0.
        temperature: one, or [batch, length].

    Returns:
        f32 [batch, length] or [batch, length - 1]; 0 at padding. Differentiable.
    """
    if not hasattr(model, "_isoc"):
        raise ValueError("the model is not patched")
    # Through the model's own call, whose hooks bring what wrappers have spread over ranks.
    return model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
                 isoc_targets=(targets, temperature))


def _logprobs(model: Any, ids: torch.Tensor, rows: _Rows, targets: torch.Tensor | None,
              temperature: float | torch.Tensor) -> torch.Tensor:
    moved = targets is None
    if targets is None:
        targets = torch.cat([ids[:, 1:], ids.new_zeros(len(ids), 1)], 1)
    heat = torch.as_tensor(temperature, dtype=torch.float32, device=ids.device)
    flat = _run(model, "logprob", rows, {"ids": ids, "targets": targets,
                                        "temperature": heat.expand(ids.shape)})
    whole = _place(flat, rows, ids.shape)
    return whole[:, :-1] if moved else whole


def _rows_of(ids: torch.Tensor, mask: torch.Tensor | None,
             positions: torch.Tensor | None) -> _Rows:
    batch, length = ids.shape
    if mask is None:
        mask = torch.ones_like(ids)
    if mask.shape != ids.shape:
        raise ValueError(f"attention_mask has shape {tuple(mask.shape)}; isoc takes one of "
                         f"{tuple(ids.shape)}, 0 at padding")
    keep = mask.flatten().bool()
    if positions is None:
        positions = (mask.cumsum(1) - 1).clamp(min=0)
    at = keep.nonzero().flatten()
    flat = positions.expand(batch, length).flatten()[at].int()
    begins = flat == 0
    if not bool(begins[0]):
        raise ValueError("the first sequence does not begin at position 0")
    sequences = begins.cumsum(0).int() - 1
    return _Rows(flat, sequences, begins.nonzero().flatten().int(), at)


def _run(model: Any, output: str, rows: _Rows, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    given = {}
    for name, tensor in inputs.items():
        flat = tensor.flatten()[rows.at]
        given[name] = flat if flat.is_floating_point() else flat.int()
    save = model.training and any(getattr(part, "gradient_checkpointing", False)
                                  for part in model.modules())
    return model._isoc.run(output, given, rows, save)


def _place(flat: torch.Tensor, rows: _Rows, shape: torch.Size) -> torch.Tensor:
    whole = flat.new_zeros((shape[0] * shape[1], *flat.shape[1:]))
    return whole.index_put((rows.at,), flat).view(*shape, *flat.shape[1:])


def _forward(model: Any, input_ids: torch.Tensor | None = None,
             attention_mask: torch.Tensor | None = None,
             position_ids: torch.Tensor | None = None, labels: torch.Tensor | None = None,
             use_cache: bool | None = None, return_dict: bool | None = None,
             logits_to_keep: int = 0, isoc_targets: Any = None, **more: Any) -> Any:
    """The signature of transformers' causal models; what the contract has no say in is refused."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    asked = [name for name, value in more.items() if value is not None and value is not False]
    if input_ids is None or asked:
        raise _native.error(Status.UNSUPPORTED, "the contract does not cover "
                            f"{', '.join(asked) or 'inputs other than input_ids'}; unpatch the "
                            "model, or sample with isoc.Engine")
    rows = _rows_of(input_ids, attention_mask, position_ids)
    if isoc_targets is not None:
        return _logprobs(model, input_ids, rows, *isoc_targets)
    heat = torch.ones(input_ids.shape, device=input_ids.device)
    logits = _place(_run(model, "logits", rows, {"ids": input_ids, "temperature": heat}), rows,
                    input_ids.shape)
    loss = None
    if labels is not None:
        loss = model.loss_function(logits=logits, labels=labels,
                                   vocab_size=model.config.vocab_size)
    return CausalLMOutputWithPast(loss=loss, logits=logits[:, -logits_to_keep:])
