"""Memories against torch's own cells and by hand."""

import pytest
import torch

from podracer.agents.memory import recall, remember
from podracer.agents.networks import actor
from tests.agents.populations import CONTINUOUS, GRU, LSTM, STACK, inputs, numbers, population

BARS = 3


def test_a_stack_shows_the_last_sessions_side_by_side():
    seen = inputs(bars=BARS)
    found = remember(population("ppo", network=STACK).weights, seen).market_LF
    for stretch in range(2):
        for t in range(2):
            rows = seen.past_CQF[stretch, t : t + BARS]
            assert torch.equal(found[2 * stretch + t], rows.flatten())


@pytest.mark.parametrize("network", [GRU, LSTM])
def test_cells_are_those_of_torch(network):
    weights, seen = population("ppo", network=network).weights, inputs(bars=BARS)
    found = remember(weights, seen).memory_PLM
    kind = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[network.memory]
    for p in range(3):
        theirs = kind(5, 4, batch_first=True)
        with torch.no_grad():
            theirs.weight_ih_l0.copy_(weights["cell_input"][p].T)
            theirs.weight_hh_l0.copy_(weights["cell_recurrent"][p].T)
            theirs.bias_ih_l0.copy_(weights["cell_bias"][p, 0])
            theirs.bias_hh_l0.zero_()
            if network.memory == "gru":
                theirs.bias_hh_l0[8:] = weights["cell_recurrent_bias"][p, 0]
            states, _ = theirs(seen.past_CQF)
        expected = states[:, BARS - 1 :].flatten(0, 1)
        assert torch.allclose(found[p], expected, atol=1e-6)


def test_without_a_memory_nothing_is_remembered():
    seen = inputs()
    assert remember(population("ppo").weights, seen) is seen
    assert recall(population("ppo").weights, seen).states_PLM is None


@pytest.mark.parametrize("network", [STACK, GRU, LSTM])
def test_scores_depend_on_the_last_sessions_and_on_none_before(network):
    weights = population("ppo", network=network).weights
    seen = inputs(bars=BARS)
    alone = seen._replace(
        asset_LAK=seen.asset_LAK[:1],
        market_LF=seen.market_LF[:1],
        account_PLES=seen.account_PLES[:, :1],
        past_CQF=seen.past_CQF[:1, :BARS],
    )
    first, _ = actor(weights, remember(weights, alone))
    whole, _ = actor(weights, remember(weights, seen))
    assert torch.allclose(first[:, 0], whole[:, 0], atol=1e-6)
    changed = alone._replace(past_CQF=alone.past_CQF + numbers(1, BARS, 5, seed=3))
    other, _ = actor(weights, remember(weights, changed))
    assert not torch.allclose(first, other, atol=1e-3)
    assert CONTINUOUS.num_market_features == 5
