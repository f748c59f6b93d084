"""Networks and layouts against scalar loops; pointwise kernels against float64."""

import numpy as np
import pytest
import torch

from podracer.agents.networks import actor, mlp, observed
from podracer.agents.parameters import Anatomy, Parameters, initial_weights, layout
from podracer.agents.pointwise import add_bend_, bend_backward_
from podracer.agents.settings import NetworkSettings
from tests.agents.populations import (
    CONTINUOUS,
    NO_MARKET,
    WITH_CASH,
    inputs,
    numbers,
    population,
)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_factored_mlp_is_an_mlp_on_the_whole_observation(activation):
    network = NetworkSettings(head=False, mlp_hidden=8, critic_hidden=6, activation=activation)
    p, x = population("ppo", network=network).weights, inputs()
    bend = getattr(torch, activation)
    with torch.no_grad():
        for name, out in (("mlp", actor(p, x)[0]), ("critic", mlp(p, "critic", x)[0])):
            for agent, session, env in np.ndindex(3, 4, 5):
                whole = torch.cat([p[f"{name}_market"][agent], p[f"{name}_account"][agent]])
                row = torch.cat([x.market_LF[session], x.account_PLES[agent, session, env]])
                first = bend(row @ whole + p[f"{name}_bias1"][agent, 0])
                second = bend(first @ p[f"{name}_hidden"][agent] + p[f"{name}_bias2"][agent, 0])
                expected = second @ p[f"{name}_out"][agent] + p[f"{name}_bias3"][agent, 0]
                assert torch.allclose(out[agent, session, env], expected, atol=2e-6)


def test_the_head_scores_each_asset_by_its_own_features_and_cash_by_a_number():
    p = population("ppo", WITH_CASH, NetworkSettings(head_hidden=4)).weights
    x = inputs()
    found, _ = actor(p, x)
    for agent in range(3):
        assert float(found[agent, 2, 0, 3]) == pytest.approx(float(p["cash_score"][agent, 0]))
        for asset in range(3):
            f = x.asset_LAK[2, asset]
            hidden = torch.tanh(f @ p["head_in"][agent] + p["head_bias"][agent, 0])
            expected = f @ p["head_linear"][agent, :, 0] + hidden @ p["head_out"][agent, :, 0]
            assert float(found[agent, 2, 0, asset]) == pytest.approx(float(expected), abs=1e-6)


def test_head_and_mlp_add_up():
    both = population("ppo").weights
    x = inputs()
    alone = Parameters(both.flat_PW.clone(), both.layout)
    for name in both:
        if name.startswith("head"):
            alone[name].zero_()
    mlp_only, _ = actor(alone, x)
    for name in both:
        alone[name].copy_(both[name] if name.startswith("head") else torch.zeros(()))
    head_only, _ = actor(alone, x)
    assert torch.allclose(actor(both, x)[0], mlp_only + head_only, atol=1e-5)


def test_an_environment_without_a_market_is_seen_by_its_observations_alone():
    network = NetworkSettings(mlp_hidden=8)
    p = population("ppo", NO_MARKET, network).weights
    seen = numbers(3, 6, 4)
    out, _ = actor(p, observed(seen))
    assert out.shape == (3, 1, 6, 2)
    first = torch.tanh(seen[1, 4] @ p["mlp_account"][1] + p["mlp_bias1"][1, 0])
    second = torch.tanh(first @ p["mlp_hidden"][1] + p["mlp_bias2"][1, 0])
    expected = second @ p["mlp_out"][1] + p["mlp_bias3"][1, 0]
    assert torch.allclose(out[1, 0, 4], expected, atol=1e-6)


def test_a_network_that_reads_the_account_must_be_given_one():
    p = population("ppo").weights
    with pytest.raises(ValueError, match="the critic reads the account"):
        mlp(p, "critic", inputs()._replace(account_PLES=None))


def test_a_new_agent_scores_everything_nearly_alike():
    made = layout(NetworkSettings(mlp_hidden=64), CONTINUOUS, Anatomy(spread="one"))
    flat = initial_weights(made, torch.Generator().manual_seed(0), 0.5)[None]
    out, _ = actor(Parameters(flat, made), inputs(num_agents=1))
    assert float(out.abs().max()) < 0.2
    assert float(Parameters(flat, made)["log_std"].exp()) == pytest.approx(0.5)


@pytest.mark.parametrize(("activation", "bias"), [("tanh", 0.0), ("relu", 1 / 8)])
def test_layers_start_as_their_bend_wants_it(activation, bias):
    settings = NetworkSettings(mlp_hidden=64, activation=activation)
    made = layout(settings, CONTINUOUS, Anatomy(spread="one"))
    flat = initial_weights(made, torch.Generator().manual_seed(0), 0.5)[None]
    weights = Parameters(flat, made)
    # Normal with variance 1 / 64, or uniform within 1 / 8, whose deviation is 1 / (8 sqrt 3).
    deviation = 1 / 8 if activation == "tanh" else 1 / 8 / 3**0.5
    assert float(weights["mlp_hidden"].std()) == pytest.approx(deviation, rel=0.03)
    assert bool((weights["mlp_hidden"].abs() <= 1 / 8).all()) == (activation == "relu")
    assert float(weights["mlp_bias2"].abs().max()) == pytest.approx(bias, rel=0.1)
    assert float(weights["mlp_bias3"].abs().max()) <= 0.01 / 8


def test_the_span_of_some_layers_is_where_they_lie():
    p = population("sac").weights
    span = p.layout.span("critic")
    flat = torch.zeros_like(p.flat_PW)
    flat[:, span] = 1.0
    views = Parameters(flat, p.layout)
    for name in p:
        assert float(views[name].mean()) == float(name.startswith("critic"))


def test_the_fast_tanh_is_tanh_to_three_units_in_the_last_place_and_keeps_nan():
    z = torch.linspace(-12, 12, 100_001).view(1, 1, -1, 1)
    bias = torch.full((1, 1, 1), 0.25)
    with torch.no_grad():
        found = add_bend_(z.clone(), bias, "tanh").flatten().double()
        nan = add_bend_(torch.full((1, 1, 2, 3), torch.nan), torch.zeros(1, 1, 3), "tanh")
    expected = np.tanh((z + 0.25).flatten().double().numpy())
    assert np.abs(found.numpy() / expected - 1).max() < 3e-7
    assert bool(nan.isnan().all())


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_each_row_gets_its_own_bias_and_gradients_follow_the_bend(activation):
    z, bias = numbers(2, 3, 4, 5), numbers(2, 3, 5, seed=1)
    bend = getattr(torch, activation)
    with torch.no_grad():
        bent = add_bend_(z.clone(), bias, activation)
        assert torch.allclose(bent, bend(z + bias[:, :, None]), atol=1e-6)
        gradient = numbers(2, 3, 4, 5, seed=2)
        by_bias = bend_backward_(gradient, bent, activation)
    leaf, bias_leaf = z.clone().requires_grad_(), bias.clone().requires_grad_()
    out = (bend(leaf + bias_leaf[:, :, None]) * numbers(2, 3, 4, 5, seed=2)).sum()
    expected, expected_bias = torch.autograd.grad(out, (leaf, bias_leaf))
    assert torch.allclose(gradient, expected, atol=1e-5)
    assert torch.allclose(by_bias, expected_bias, atol=1e-5)
