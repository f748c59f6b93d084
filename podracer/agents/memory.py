"""Memory: what an MLP is told of the sessions before this one.

Markets do not depend on accounts, so a memory of them belongs to an agent and a session, not to each
of its accounts: it is computed once a session, as the rest of the factored first layer. It is a
function of the last `memory_bars` sessions and of nothing else: a registered model needs those rows and
no state, and a score does not depend on where or with how many others it was measured. While training
a cell runs through a whole stretch of sessions, so that all but its first have seen more than that.

`stack` shows those sessions side by side; `gru` and `lstm` are cells, and the one part of the networks
whose gradient is autograd's.

Shapes: P agents, C stretches of T sessions, L = C·T sessions, Q = memory_bars - 1 + T rows that a stretch
sees, F market features, M units of a cell, G gates.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from podracer.agents.networks import Inputs
from podracer.agents.parameters import CELL, Parameters


class Recall(NamedTuple):
    """What is remembered, and how to learn to remember better.

    Attributes:
        inputs: with the memory.
        states_PLM: the memory with its history of operations, or None without a cell.
        leaves: the cell's parameters that autograd differentiates by.
    """

    inputs: Inputs
    states_PLM: Tensor | None
    leaves: dict[str, Tensor]


def remember(parameters: Parameters, inputs: Inputs) -> Inputs:
    """Return the inputs with what these agents remember on each session."""
    memory, bars = parameters.layout.memory, parameters.layout.memory_bars
    if memory == "none" or inputs.past_CQF is None:
        return inputs
    if memory == "stack":
        windows_CTFK = inputs.past_CQF.unfold(1, bars, 1)
        return inputs._replace(market_LF=windows_CTFK.mT.flatten(2).flatten(0, 1))
    cell = {name: parameters[name] for name in parameters if name.startswith(CELL)}
    return inputs._replace(memory_PLM=_run(memory, cell, inputs.past_CQF, bars))


def recall(parameters: Parameters, inputs: Inputs) -> Recall:
    """Remember in a way that `recall_backward` can learn from."""
    names = [name for name in parameters if name.startswith(CELL)]
    if not names or inputs.past_CQF is None:
        return Recall(remember(parameters, inputs), None, {})
    leaves = {name: parameters[name].detach().clone().requires_grad_() for name in names}
    memory, bars = parameters.layout.memory, parameters.layout.memory_bars
    with torch.enable_grad():
        states_PLM = _run(memory, leaves, inputs.past_CQF, bars)
    return Recall(inputs._replace(memory_PLM=states_PLM.detach()), states_PLM, leaves)


def recall_backward(recalled: Recall, memory_PLM: Tensor, gradients: Parameters) -> None:
    """Write the gradients of a cell's parameters, given that of the memory."""
    if recalled.states_PLM is None:
        return
    found = torch.autograd.grad(recalled.states_PLM, list(recalled.leaves.values()), memory_PLM)
    for name, gradient in zip(recalled.leaves, found, strict=True):
        gradients[name].copy_(gradient)


def _run(memory: str, cell: dict[str, Tensor], past_CQF: Tensor, bars: int) -> Tensor:
    """Run a cell through stretches from a state of zeros; returns the states of T sessions (P, L, M)."""
    P, C, M = len(cell["cell_input"]), len(past_CQF), cell["cell_recurrent"].shape[1]
    seen_PXG = torch.matmul(past_CQF.flatten(0, 1), cell["cell_input"]) + cell["cell_bias"]
    seen_PCQG = seen_PXG.view(P, C, past_CQF.shape[1], -1)
    step = _gru if memory == "gru" else _lstm
    state = past_CQF.new_zeros(P, C, M)
    carried = torch.zeros_like(state)
    states = []
    for q in range(past_CQF.shape[1]):
        state, carried = step(cell, seen_PCQG[:, :, q], state, carried)
        if q >= bars - 1:
            states.append(state)
    return torch.stack(states, dim=2).flatten(1, 2)


def _gru(
    cell: dict[str, Tensor], seen_PCG: Tensor, state: Tensor, carried: Tensor
) -> tuple[Tensor, Tensor]:
    """A gated recurrent unit (Cho et al. 2014, arXiv:1406.1078) as torch writes it."""
    own_PCG = torch.bmm(state, cell["cell_recurrent"])
    M = state.shape[-1]
    gates = torch.sigmoid(seen_PCG[..., : 2 * M] + own_PCG[..., : 2 * M])
    reset, keep = gates.chunk(2, dim=-1)
    own_new = own_PCG[..., 2 * M :] + cell["cell_recurrent_bias"]
    new = torch.tanh(seen_PCG[..., 2 * M :] + reset * own_new)
    return new + keep * (state - new), carried


def _lstm(
    cell: dict[str, Tensor], seen_PCG: Tensor, state: Tensor, carried: Tensor
) -> tuple[Tensor, Tensor]:
    """Long short-term memory (Hochreiter and Schmidhuber 1997) with a forget gate."""
    gates = seen_PCG + torch.bmm(state, cell["cell_recurrent"])
    put, keep, new, show = gates.chunk(4, dim=-1)
    carried = torch.sigmoid(keep) * carried + torch.sigmoid(put) * torch.tanh(new)
    return torch.sigmoid(show) * torch.tanh(carried), carried
