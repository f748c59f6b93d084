"""Weights of a population in one flat tensor, and what their layers are called.

Shapes: P agents, W weights of one agent, A assets, K asset features, F market features, S account
inputs, H hidden units.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from podracer.agents.settings import WIDE, NetworkSettings

Shapes = dict[str, tuple[int, ...]]

# The outputs of these layers start near zero, so that a new agent holds about equal weights.
CELL = "cell"
_NEARLY_ZERO = ("head_linear", "head_out", "mlp_out")


class Dimensions(NamedTuple):
    """Sizes that the market or the environment dictates.

    Attributes:
        num_assets: A; 0 where there is no market.
        num_asset_features: K.
        num_market_features: F.
        num_account_inputs: S; the whole observation of an environment without a market.
        num_actions: one for each asset, and one for cash if agents may hold it.
        num_choices: of each action; 0 where actions are continuous.
    """

    num_assets: int
    num_asset_features: int
    num_market_features: int
    num_account_inputs: int
    num_actions: int
    num_choices: int = 0

    @property
    def num_scores(self) -> int:
        """What an actor gives: one score for each action, or for each choice of each action."""
        return self.num_actions * max(self.num_choices, 1)


class Anatomy(NamedTuple):
    """What an algorithm adds to the networks.

    Attributes:
        critics: their names.
        critics_see_actions: Q(s, a) instead of V(s).
        spread: how the standard deviation of exploration is learnt: one number for all actions,
            one for each, by the network from what it sees, or not at all.
        duelling: the MLP gives a value beside the scores.
        has_temperature: the weight of the entropy is learnt.
    """

    critics: tuple[str, ...] = ()
    critics_see_actions: bool = False
    spread: str = "none"
    duelling: bool = False
    has_temperature: bool = False


class Layout(NamedTuple):
    """One agent's parameters: names and shapes in storage order, how layers bend, multiply and remember."""

    shapes: Shapes
    activation: str
    memory: str = "none"
    memory_bars: int = 1
    precision: str = "float32"

    def rounds(self, name: str) -> bool:
        """Return whether the products of an MLP's hidden layers are rounded to bfloat16."""
        return self.precision == "bfloat16" and self.shapes[f"{name}_hidden"][0] >= WIDE

    @property
    def num_weights(self) -> int:
        """W."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def span(self, *names: str) -> slice:
        """Return where the parameters whose names begin so lie; they must be neighbours."""
        offset, start, stop = 0, -1, 0
        for name, shape in self.shapes.items():
            if name.startswith(names):
                start = offset if start < 0 else start
                stop = offset + math.prod(shape)
            offset += math.prod(shape)
        return slice(max(start, 0), stop)


def layout(settings: NetworkSettings, sizes: Dimensions, anatomy: Anatomy) -> Layout:
    """Return the parameters of one agent: the actor's first, then each critic's."""
    K, M = sizes.num_asset_features, max(sizes.num_choices, 1)
    shapes: Shapes = {}
    if anatomy.spread != "none":
        shapes["log_std"] = (1 if anatomy.spread == "one" else sizes.num_actions,)
    if sizes.num_assets and sizes.num_actions > sizes.num_assets:
        shapes["cash_score"] = (1,)
    if settings.head and sizes.num_assets:
        shapes["head_linear"] = (K, M)
        if H := settings.head_hidden:
            shapes |= {"head_in": (K, H), "head_bias": (1, H), "head_out": (H, M)}
    num_units = 0
    if settings.memory == "stack":
        sizes = sizes._replace(num_market_features=settings.memory_bars * sizes.num_market_features)
    elif settings.memory != "none":
        num_units = settings.memory_hidden
        shapes |= _cell(settings.memory, sizes.num_market_features, num_units)
    if settings.mlp_hidden:
        outputs = sizes.num_scores + int(anatomy.duelling)
        outputs += sizes.num_actions if anatomy.spread == "seen" else 0
        widths = sizes.num_account_inputs, settings.mlp_hidden, outputs
        shapes |= _two_layers("mlp", sizes, num_units, widths)
    for name in anatomy.critics if settings.critic_hidden else ():
        own = sizes.num_account_inputs + (sizes.num_actions if anatomy.critics_see_actions else 0)
        shapes |= _two_layers(name, sizes, num_units, (own, settings.critic_hidden, 1))
    if anatomy.has_temperature:
        shapes["temperature"] = (1,)
    bars = 1 if settings.memory == "none" else settings.memory_bars
    return Layout(shapes, settings.activation, settings.memory, bars, settings.precision)


def _cell(memory: str, num_inputs: int, M: int) -> Shapes:
    """Return the parameters of a GRU or LSTM; gates side by side in torch's order."""
    gates = {"gru": 3, "lstm": 4}[memory]
    shapes: Shapes = {
        f"{CELL}_input": (num_inputs, gates * M),
        f"{CELL}_recurrent": (M, gates * M),
        f"{CELL}_bias": (1, gates * M),
    }
    return shapes | {f"{CELL}_recurrent_bias": (1, M)} if memory == "gru" else shapes


def _two_layers(
    name: str, sizes: Dimensions, num_units: int, widths: tuple[int, int, int]
) -> Shapes:
    own, H, outputs = widths
    remembered: Shapes = {f"{name}_memory": (num_units, H)} if num_units else {}
    return {
        f"{name}_market": (sizes.num_market_features, H),
        f"{name}_account": (own, H),
        **remembered,
        f"{name}_bias1": (1, H),
        f"{name}_hidden": (H, H),
        f"{name}_bias2": (1, H),
        f"{name}_out": (H, outputs),
        f"{name}_bias3": (1, outputs),
    }


class Parameters:
    """Numbers of P agents in one flat tensor (P, W), with a named view (P, …) for each layer."""

    def __init__(self, flat_PW: Tensor, layout: Layout) -> None:
        self.flat_PW = flat_PW
        self.layout = layout
        self._views: dict[str, Tensor] = {}
        offset = 0
        for name, shape in layout.shapes.items():
            size = math.prod(shape)
            self._views[name] = flat_PW[:, offset : offset + size].view(len(flat_PW), *shape)
            offset += size

    def __getitem__(self, name: str) -> Tensor:
        return self._views[name]

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        """P."""
        return len(self.flat_PW)

    @property
    def reads_account(self) -> bool:
        """Whether any network looks at cash and holdings."""
        return any(name.endswith("_account") for name in self._views)


def initial_weights(layout: Layout, generator: torch.Generator, std: float) -> Tensor:
    """Draw one agent's weights (W,).

    Layers that give the actions start near zero. The others are normal with variance 1 / inputs and no
    biases where they bend by tanh. Where they bend by ReLU they are as `torch.nn.Linear` has them, uniform
    within 1 / sqrt(inputs) with their biases: from the wider start values that learn from their own
    targets ran away (DQN on CartPole, to 10^6; this way they stayed below 200).

    Args:
        layout: of the agent.
        generator: of the agent.
        std: standard deviation of exploration.
    """
    is_bounded = layout.activation == "relu"
    parts, scale = [], 0.0
    for name, shape in layout.shapes.items():
        values = torch.zeros(shape)
        if name == "log_std":
            values.fill_(math.log(std))
        elif len(shape) == 2 and "bias" not in name:
            scale = (0.01 if name in _NEARLY_ZERO else 1.0) / math.sqrt(max(shape[0], 1))
            draw = torch.rand if is_bounded else torch.randn
            values = draw(shape, generator=generator)
            values = scale * (2.0 * values - 1.0 if is_bounded else values)
        elif len(shape) == 2 and is_bounded:  # a bias, of the layer before it
            values = scale * (2.0 * torch.rand(shape, generator=generator) - 1.0)
        parts.append(values.flatten())
    return torch.cat(parts)
