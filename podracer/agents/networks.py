"""The networks of a population, forward and backward: stacked weights, one batched program.

An actor's scores are the sum of a *shared per-asset head* (the same small weights applied to each
asset's own features) and, optionally, an MLP that looks at everything; a critic is an MLP. The first
layer of an MLP is factored: its market part is computed once per session, its own part once per
environment. Gradients are closed-form; autograd over the same forward pass is the tests' oracle.

Shapes: P agents, L sessions of a batch, E environments on each of them, X = L·E samples, A assets,
K asset features, F market features, S inputs of an environment's own, H hidden units, N scores,
M scores of an asset or units of a
memory's cell, O outputs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from podracer.agents.parameters import Parameters
from podracer.agents.pointwise import add_bend_, bend_backward_
from podracer.agents.products import product


class Inputs(NamedTuple):
    """What the networks see: shared by all agents, but for the account.

    Attributes:
        asset_LAK: scores of each asset across the universe.
        market_LF: scaled market features.
        account_PLES: what an environment shows to itself alone, or None where nothing reads it.
        past_CQF: what a memory is made of: rows of stretches of sessions and those before them.
        memory_PLM: what a recurrent cell remembers.
    """

    asset_LAK: Tensor
    market_LF: Tensor
    account_PLES: Tensor | None = None
    past_CQF: Tensor | None = None
    memory_PLM: Tensor | None = None

    def with_actions(self, action_PLEN: Tensor) -> "Inputs":
        """Return the inputs of a critic that sees actions, after what it sees of the account."""
        account_PLES = _given(self, "critic")
        num_envs = max(account_PLES.shape[2], action_PLEN.shape[2])
        parts = [part.expand(-1, -1, num_envs, -1) for part in (account_PLES, action_PLEN)]
        return self._replace(account_PLES=torch.cat(parts, dim=-1))


def observed(observation_PXS: Tensor) -> Inputs:
    """Return the inputs of environments without a market."""
    return Inputs(
        observation_PXS.new_empty(1, 0, 0),
        observation_PXS.new_empty(1, 0),
        observation_PXS[:, None],
    )


class Hidden(NamedTuple):
    """The hidden layers of an MLP (P, X, H); the backward pass uses them up."""

    first: Tensor
    second: Tensor


class ActorHidden(NamedTuple):
    """What an actor's backward pass needs; None for a part it does not have."""

    head: Tensor | None
    mlp: Hidden | None


def actor(parameters: Parameters, inputs: Inputs) -> tuple[Tensor, ActorHidden]:
    """Return an actor's outputs (P, L, E, O) and its hidden layers.

    E is 1 where they do not depend on the account. The scores come first; an MLP may give more.
    """
    scores_PLN, head_hidden = _head(parameters, inputs)
    outputs_PLEO = scores_PLN[:, :, None]
    if "mlp_out" not in parameters:
        return outputs_PLEO, ActorHidden(head_hidden, None)
    mlp_PLEO, hidden = mlp(parameters, "mlp", inputs)
    mlp_PLEO[..., : scores_PLN.shape[-1]] += outputs_PLEO
    return mlp_PLEO, ActorHidden(head_hidden, hidden)


def actor_backward(
    parameters: Parameters,
    gradients: Parameters,
    inputs: Inputs,
    hidden: ActorHidden,
    output_PLEO: Tensor,
) -> Tensor | None:
    """Write the gradients of an actor's parameters, given those of its outputs.

    Returns:
        The gradient of the memory (P, L, M), None without one.
    """
    num_scores, memory_PLM = output_PLEO.shape[-1], None
    if hidden.mlp is not None:
        memory_PLM = mlp_backward(parameters, gradients, "mlp", inputs, hidden.mlp, output_PLEO)
        num_scores = _num_head_scores(parameters, inputs)
    if num_scores and ("head_linear" in parameters or "cash_score" in parameters):
        scores_PLN = output_PLEO[..., :num_scores].sum(2)
        _head_backward(parameters, gradients, inputs, hidden.head, scores_PLN)
    return memory_PLM


def mlp(parameters: Parameters, name: str, inputs: Inputs) -> tuple[Tensor, Hidden]:
    """Return the outputs (P, L, E, O) of a two-layer MLP and its hidden layers."""

    def weight(part: str) -> Tensor:
        return parameters[f"{name}_{part}"]

    account_PLES = _given(inputs, name)
    P, L, E, S = account_PLES.shape
    activation = parameters.layout.activation
    is_rounded = parameters.layout.rounds(name)
    session_PLH = product(inputs.market_LF, weight("market"), is_rounded) + weight("bias1")
    if inputs.memory_PLM is not None:
        session_PLH = session_PLH + torch.bmm(inputs.memory_PLM, weight("memory"))
    first = product(account_PLES.reshape(P, L * E, S), weight("account"), is_rounded)
    add_bend_(first.view(P, L, E, -1), session_PLH, activation)
    second = product(first, weight("hidden"), is_rounded)
    add_bend_(second[:, None], weight("bias2"), activation)
    out_PXO = _products(second, weight("out")).add_(weight("bias3"))
    return out_PXO.view(P, L, E, -1), Hidden(first, second)


def mlp_backward(
    parameters: Parameters,
    gradients: Parameters,
    name: str,
    inputs: Inputs,
    hidden: Hidden,
    output_PLEO: Tensor,
) -> Tensor | None:
    """Write the gradients of an MLP's parameters, given those of its outputs.

    Returns:
        The gradient of the memory (P, L, M), None without one.
    """

    def gradient(part: str) -> Tensor:
        return gradients[f"{name}_{part}"]

    account_PLES = _given(inputs, name)
    P, L, E, S = account_PLES.shape
    is_rounded = parameters.layout.rounds(name)
    output_PXO = output_PLEO.reshape(P, L * E, -1)
    torch.bmm(hidden.second.mT, output_PXO, out=gradient("out"))
    torch.sum(output_PXO, 1, keepdim=True, out=gradient("bias3"))
    second_PXH, bias = _second_backward(parameters, name, hidden, output_PXO)
    product(hidden.first.mT, second_PXH, is_rounded, out=gradient("hidden"))
    gradient("bias2").copy_(bias)
    first_PXH, session_PLH = _first_backward(parameters, name, hidden, second_PXH, (L, E))
    account_PSX = account_PLES.reshape(P, L * E, S).mT
    product(account_PSX, first_PXH, is_rounded, out=gradient("account"))
    market_PFL = inputs.market_LF.T.expand(P, -1, -1)
    product(market_PFL, session_PLH, is_rounded, out=gradient("market"))
    torch.sum(session_PLH, 1, keepdim=True, out=gradient("bias1"))
    if inputs.memory_PLM is None:
        return None
    torch.bmm(inputs.memory_PLM.mT, session_PLH, out=gradient("memory"))
    return torch.bmm(session_PLH, parameters[f"{name}_memory"].mT)


def account_gradient(
    parameters: Parameters, name: str, hidden: Hidden, output_PLEO: Tensor, columns: slice
) -> Tensor:
    """Return the gradient of some of an MLP's own inputs (P, L, E, columns)."""
    P, L, E, _ = output_PLEO.shape
    second, _ = _second_backward(parameters, name, hidden, output_PLEO.reshape(P, L * E, -1))
    first, _ = _first_backward(parameters, name, hidden, second, (L, E))
    weight = parameters[f"{name}_account"][:, columns]
    return torch.bmm(first, weight.mT).view(P, L, E, -1)


def _second_backward(
    parameters: Parameters, name: str, hidden: Hidden, output_PXO: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of what the second hidden layer bends (P, X, H) and of its bias."""
    second = _products(output_PXO, parameters[f"{name}_out"].mT)
    activation = parameters.layout.activation
    bias = bend_backward_(second[:, None], hidden.second[:, None], activation)
    return second, bias


def _first_backward(
    parameters: Parameters, name: str, hidden: Hidden, second_PXH: Tensor, rows: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return the gradients of what the first hidden layer bends (P, X, H), and of its rows (P, L, H)."""
    first = product(second_PXH, parameters[f"{name}_hidden"].mT, parameters.layout.rounds(name))
    shape = (len(first), *rows, first.shape[-1])
    activation = parameters.layout.activation
    return first, bend_backward_(first.view(shape), hidden.first.view(shape), activation)


def _products(left_PXI: Tensor, right_PIO: Tensor) -> Tensor:
    """Return the product of each agent; a value head's single column or row takes no matrix kernel."""
    if right_PIO.shape[1] == 1:
        return left_PXI * right_PIO
    if right_PIO.shape[2] == 1:
        return torch.linalg.vecdot(left_PXI, right_PIO.mT)[..., None]
    return torch.bmm(left_PXI, right_PIO)


def _num_head_scores(parameters: Parameters, inputs: Inputs) -> int:
    num_assets = inputs.asset_LAK.shape[1]
    per_asset = parameters["head_linear"].shape[-1] if "head_linear" in parameters else 1
    return num_assets * per_asset + int("cash_score" in parameters)


def _head(parameters: Parameters, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
    """Return the head's scores (P, L, N), of cash last, and its hidden layer."""
    P = len(parameters)
    L, A, K = inputs.asset_LAK.shape
    hidden = None
    if "head_linear" in parameters:
        rows = inputs.asset_LAK.reshape(L * A, K)
        scores = torch.matmul(rows, parameters["head_linear"])
        if "head_in" in parameters:
            hidden = torch.tanh(torch.matmul(rows, parameters["head_in"]) + parameters["head_bias"])
            scores = scores + torch.bmm(hidden, parameters["head_out"])
        scores_PLN = scores.reshape(P, L, -1)
    else:
        scores_PLN = inputs.asset_LAK.new_zeros(P, L, A)
    if "cash_score" in parameters:
        cash_PL1 = parameters["cash_score"][:, None, :].expand(P, L, 1)
        scores_PLN = torch.cat([scores_PLN, cash_PL1], dim=2)
    return scores_PLN, hidden


def _head_backward(
    parameters: Parameters,
    gradients: Parameters,
    inputs: Inputs,
    hidden: Tensor | None,
    scores_PLN: Tensor,
) -> None:
    P, L, num_scores = scores_PLN.shape
    if "cash_score" in parameters:
        gradients["cash_score"].copy_(scores_PLN[:, :, -1].sum(1, keepdim=True))
        num_scores -= 1
    if "head_linear" not in parameters:
        return
    _, A, K = inputs.asset_LAK.shape
    rows = inputs.asset_LAK.reshape(L * A, K)
    scores_PRM = scores_PLN[..., :num_scores].reshape(P, L * A, -1)
    gradients["head_linear"].copy_(torch.matmul(rows.T, scores_PRM))
    if hidden is not None:
        gradients["head_out"].copy_(torch.bmm(hidden.mT, scores_PRM))
        inner = torch.bmm(scores_PRM, parameters["head_out"].mT)
        inner.addcmul_(inner, hidden.square(), value=-1)
        gradients["head_in"].copy_(torch.matmul(rows.T, inner))
        gradients["head_bias"].copy_(inner.sum(1, keepdim=True))


def _given(inputs: Inputs, name: str) -> Tensor:
    if inputs.account_PLES is None:
        raise ValueError(f"the {name} reads the account, but no account was given")
    return inputs.account_PLES
