"""The networks of a population: stacked weights, so that P agents are one batched program.

An agent's action mean is the sum of a *shared per-asset head* (the same small weights applied to
each asset's own features) and, optionally, an MLP that looks at everything. The first layer of the
MLP is factored: its market part is computed once per session, its account part once per environment.

Shapes: P agents, L sessions of a batch, E environments on each of them, A assets, K asset features,
F market features, S account inputs, H hidden units, N actions, W weights of one agent.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from podracer.agents.settings import NetworkSettings


class Dimensions(NamedTuple):
    """Sizes that the market dictates."""

    num_assets: int
    num_asset_features: int
    num_market_features: int
    num_account_inputs: int
    cash_action: bool

    @property
    def num_actions(self) -> int:
        """N: one score for each asset, and one for cash if agents may hold it."""
        return self.num_assets + int(self.cash_action)


class Inputs(NamedTuple):
    """What the networks see: shared by all agents, but for the account.

    Attributes:
        asset_LAK: scores of each asset across the universe.
        market_LF: scaled market features.
        account_PLES: what accounts look like, or None where nothing reads it.
    """

    asset_LAK: Tensor
    market_LF: Tensor
    account_PLES: Tensor | None = None


def parameter_shapes(settings: NetworkSettings, sizes: Dimensions) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every parameter of one agent, in storage order."""
    K, F = sizes.num_asset_features, sizes.num_market_features
    N = sizes.num_actions
    shapes: dict[str, tuple[int, ...]] = {"log_std": (1,)}
    if sizes.cash_action:
        shapes["cash_score"] = (1,)
    if settings.head:
        shapes["head_linear"] = (K, 1)
        if H := settings.head_hidden:
            shapes |= {"head_in": (K, H), "head_bias": (1, H), "head_out": (H, 1)}
    for name, H, outputs in (
        ("mlp", settings.mlp_hidden, N),
        ("critic", settings.critic_hidden, 1),
    ):
        if H:
            shapes |= {
                f"{name}_market": (F, H),
                f"{name}_account": (sizes.num_account_inputs, H),
                f"{name}_bias1": (1, H),
                f"{name}_hidden": (H, H),
                f"{name}_bias2": (1, H),
                f"{name}_out": (H, outputs),
                f"{name}_bias3": (1, outputs),
            }
    return shapes


class Parameters:
    """Weights of P agents in one flat tensor (P, W), with a named view for each layer."""

    def __init__(self, flat_PW: Tensor, shapes: dict[str, tuple[int, ...]]) -> None:
        self.flat_PW = flat_PW
        self.shapes = shapes
        self._views: dict[str, Tensor] = {}
        offset = 0
        for name, shape in shapes.items():
            size = math.prod(shape)
            self._views[name] = flat_PW[:, offset : offset + size].reshape(len(flat_PW), *shape)
            offset += size

    def __getitem__(self, name: str) -> Tensor:
        return self._views[name]

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)


def initial_weights(
    shapes: dict[str, tuple[int, ...]], generator: torch.Generator, std: float
) -> Tensor:
    """Draw one agent's weights (W,).

    Layers that give the actions start near zero, so that a new agent holds about equal weights; the
    others are normal with variance 1 / inputs.
    """
    parts = []
    for name, shape in shapes.items():
        values = torch.zeros(shape)
        if name == "log_std":
            values.fill_(math.log(std))
        elif len(shape) == 2 and "bias" not in name:
            scale = 0.01 if name in ("head_linear", "head_out", "mlp_out") else 1.0
            values = torch.randn(shape, generator=generator) * (scale / math.sqrt(max(shape[0], 1)))
        parts.append(values.flatten())
    return torch.cat(parts)


def action_means(parameters: Parameters, inputs: Inputs) -> Tensor:
    """Return the mean score of every action (P, L, E, N).

    E is 1 where the scores do not depend on the account.
    """
    num_agents = len(parameters.flat_PW)
    L, A, K = inputs.asset_LAK.shape
    scores_PLA = torch.zeros(num_agents, L, A)
    if "head_linear" in parameters:
        rows = inputs.asset_LAK.reshape(L * A, K)
        scores = torch.matmul(rows, parameters["head_linear"])
        if "head_in" in parameters:
            hidden = torch.tanh(torch.matmul(rows, parameters["head_in"]) + parameters["head_bias"])
            scores = scores + torch.matmul(hidden, parameters["head_out"])
        scores_PLA = scores.reshape(num_agents, L, A)
    if "cash_score" in parameters:
        cash_PL1 = parameters["cash_score"][:, None, :].expand(num_agents, L, 1)
        scores_PLA = torch.cat([scores_PLA, cash_PL1], dim=2)
    means_PLEN = scores_PLA[:, :, None, :]
    return (
        means_PLEN + _two_layers(parameters, "mlp", inputs)
        if "mlp_out" in parameters
        else means_PLEN
    )


def values(parameters: Parameters, inputs: Inputs) -> Tensor:
    """Return the critic's value of every account (P, L, E)."""
    return _two_layers(parameters, "critic", inputs)[..., 0]


def reads_account(parameters: Parameters | Sequence[str]) -> bool:
    """Tell whether any network looks at cash and holdings."""
    return "mlp_out" in parameters or "critic_out" in parameters


def _two_layers(parameters: Parameters, name: str, inputs: Inputs) -> Tensor:
    def weight(part: str) -> Tensor:
        return parameters[f"{name}_{part}"]

    account_PLES = inputs.account_PLES
    if account_PLES is None:
        raise ValueError(f"the {name} reads the account, but no account was given")
    P, L, E, S = account_PLES.shape
    session_PLH = torch.matmul(inputs.market_LF, weight("market")) + weight("bias1")
    own_PLEH = torch.bmm(account_PLES.reshape(P, L * E, S), weight("account")).reshape(P, L, E, -1)
    first = torch.tanh(own_PLEH + session_PLH[:, :, None, :]).reshape(P, L * E, -1)
    second = torch.tanh(torch.bmm(first, weight("hidden")) + weight("bias2"))
    return (torch.bmm(second, weight("out")) + weight("bias3")).reshape(P, L, E, -1)
