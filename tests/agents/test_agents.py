"""Networks, optimiser, PPO and checkpoints, against torch's own and scalar loops."""

import math

import numpy as np
import pytest
import torch

from podracer.agents import checkpoint, ppo
from podracer.agents.adam import Adam
from podracer.agents.networks import (
    Dimensions,
    Inputs,
    NetworkSettings,
    Parameters,
    action_means,
    initial_weights,
    parameter_shapes,
    values,
)
from podracer.errors import CheckpointError

SIZES = Dimensions(3, 2, 5, 4, False)


def weights(settings, num_agents=2, sizes=SIZES, scale=1.0):
    shapes = parameter_shapes(settings, sizes)
    drawn = [
        initial_weights(shapes, torch.Generator().manual_seed(i), 0.5) for i in range(num_agents)
    ]
    return torch.stack(drawn) * scale, shapes


def inputs(L=4, E=3, P=2):
    g = torch.Generator().manual_seed(9)
    return Inputs(
        torch.randn(L, 3, 2, generator=g),
        torch.randn(L, 5, generator=g),
        torch.randn(P, L, E, 4, generator=g),
    )


def test_the_factored_mlp_is_an_mlp_on_the_whole_observation():
    flat, shapes = weights(NetworkSettings(head=False, mlp_hidden=8, critic_hidden=6))
    p, x = Parameters(flat, shapes), inputs()
    for name, out in (("mlp", action_means(p, x)), ("critic", values(p, x)[..., None])):
        for agent in range(2):
            market, account = p[f"{name}_market"][agent], p[f"{name}_account"][agent]
            whole = torch.cat([market, account])
            for session in range(4):
                for env in range(3):
                    row = torch.cat([x.market_LF[session], x.account_PLES[agent, session, env]])
                    first = torch.tanh(row @ whole + p[f"{name}_bias1"][agent, 0])
                    second = torch.tanh(
                        first @ p[f"{name}_hidden"][agent] + p[f"{name}_bias2"][agent, 0]
                    )
                    expected = second @ p[f"{name}_out"][agent] + p[f"{name}_bias3"][agent, 0]
                    assert torch.allclose(out[agent, session, env], expected, atol=1e-6)


def test_the_head_scores_each_asset_by_its_own_features():
    flat, shapes = weights(NetworkSettings(head_hidden=4), scale=3.0)
    p, x = Parameters(flat, shapes), inputs()
    found = action_means(p, x)
    for agent in range(2):
        for asset in range(3):
            f = x.asset_LAK[2, asset]
            hidden = torch.tanh(f @ p["head_in"][agent] + p["head_bias"][agent, 0])
            expected = f @ p["head_linear"][agent, :, 0] + hidden @ p["head_out"][agent, :, 0]
            assert found[agent, 2, 0, asset] == pytest.approx(float(expected), abs=1e-6)


def test_a_network_that_reads_the_account_must_be_given_one():
    flat, shapes = weights(NetworkSettings(critic_hidden=4))
    with pytest.raises(ValueError, match="the critic reads the account"):
        values(Parameters(flat, shapes), inputs()._replace(account_PLES=None))


def test_adam_moves_each_agent_as_torch_does_with_its_own_rate():
    rates = torch.tensor([[1e-2], [3e-3]])
    start = torch.randn(2, 7, generator=torch.Generator().manual_seed(0))
    ours, optimizer = start.clone(), Adam(2, 7)
    theirs = [torch.nn.Parameter(start[i].clone()) for i in range(2)]
    reference = [
        torch.optim.Adam([p], lr=float(r), eps=1e-5) for p, r in zip(theirs, rates, strict=True)
    ]
    for step in range(20):
        gradient = torch.randn(2, 7, generator=torch.Generator().manual_seed(step))
        optimizer.step(ours, gradient, rates, torch.tensor([[True], [True]]))
        for i in range(2):
            theirs[i].grad = gradient[i].clone()
            reference[i].step()
    assert torch.allclose(ours, torch.stack([p.detach() for p in theirs]), atol=1e-6)


def test_an_inactive_agent_keeps_every_bit():
    ours, optimizer = torch.ones(2, 3), Adam(2, 3)
    optimizer.step(
        ours, torch.full((2, 3), torch.nan), torch.ones(2, 1), torch.tensor([[False], [False]])
    )
    assert ours.tolist() == torch.ones(2, 3).tolist()
    assert optimizer.mean_PW.tolist() == torch.zeros(2, 3).tolist()


def test_the_log_ratio_in_noise_coordinates_is_that_of_the_densities():
    g = torch.Generator().manual_seed(1)
    noise, old, new = (torch.randn(5, 4, generator=g) for _ in range(3))
    old_log_std, new_log_std = torch.tensor(-0.5), torch.tensor(-0.3)
    action = old + old_log_std.exp() * noise
    expected = torch.distributions.Normal(new, new_log_std.exp()).log_prob(action).sum(
        -1
    ) - torch.distributions.Normal(old, old_log_std.exp()).log_prob(action).sum(-1)
    found = ppo.log_ratio(noise, old, new, old_log_std, new_log_std)
    assert torch.allclose(found, expected, atol=1e-5)


def test_constant_rewards_have_the_value_of_a_geometric_series():
    reward = torch.ones(1, 1, 50, 2)
    endless = 1 / (1 - 0.9)
    value = torch.full((1, 1, 51, 2), endless)
    advantage = ppo.critic_advantages(reward, value, torch.tensor([0.9]), torch.tensor([0.95]))
    # The value is right everywhere and bootstraps the truncated end, so nothing is a surprise.
    assert torch.allclose(advantage, torch.zeros_like(advantage), atol=1e-5)
    value[:, :, -1] = 0.0
    cut = ppo.critic_advantages(reward, value, torch.tensor([0.9]), torch.tensor([0.95]))
    assert float(cut[0, 0, -1, 0]) == pytest.approx(-0.9 * endless, rel=1e-5)


def test_advantages_equal_a_scalar_loop():
    g = torch.Generator().manual_seed(2)
    reward, value = torch.randn(2, 3, 6, 4, generator=g), torch.randn(2, 3, 7, 4, generator=g)
    discount, decay = torch.tensor([0.9, 0.5]), torch.tensor([0.8, 1.0])
    found = ppo.critic_advantages(reward, value, discount, decay)
    alone = ppo.cohort_advantages(reward, discount)
    for p in range(2):
        d, k = float(discount[p]), float(decay[p])
        for t in range(6):
            expected = sum(
                (d * k) ** (s - t)
                * (reward[p, 1, s, 2] + d * value[p, 1, s + 1, 2] - value[p, 1, s, 2])
                for s in range(t, 6)
            )
            assert float(found[p, 1, t, 2]) == pytest.approx(float(expected), abs=1e-5)
            returns = [
                sum(d ** (s - t) * reward[p, 1, s, e] for s in range(t, 6)) for e in range(4)
            ]
            mean = sum(returns) / 4
            assert float(alone[p, 1, t, 2]) == pytest.approx(float(returns[2] - mean), abs=1e-5)


def batch(settings, num_agents=2):
    g = torch.Generator().manual_seed(4)
    C, T, E = 2, 2, 4
    flat, shapes = weights(settings, num_agents)
    data = Inputs(
        torch.randn(C * T, 3, 2, generator=g),
        torch.randn(C * T, 5, generator=g),
        torch.randn(num_agents, C * T, E, 4, generator=g),
    )
    with torch.no_grad():
        mean = action_means(Parameters(flat, shapes), data).reshape(num_agents, C, T, -1, 3)
    return (
        flat,
        shapes,
        data,
        ppo.Batch(
            torch.zeros(C, T, dtype=torch.long),
            torch.randn(num_agents, C, T, E, 3, generator=g),
            mean + 0.1,
            torch.full((num_agents,), math.log(0.5)),
            data.account_PLES.reshape(num_agents, C, T, E, 4),
            torch.randn(num_agents, C, T, E, generator=g),
            torch.randn(num_agents, C, T, E, generator=g) if settings.critic_hidden else None,
        ),
    )


def test_the_loss_is_minus_the_clipped_objective_minus_entropy_plus_the_critics_error():
    settings = NetworkSettings(mlp_hidden=4, critic_hidden=4)
    flat, shapes, data, b = batch(settings)
    tuning = ppo.Tuning(torch.full((2,), 1e-3), torch.tensor([0.1, 0.3]), torch.tensor([0.0, 0.02]))
    found = ppo.losses(Parameters(flat, shapes), data, b, tuning)
    p = Parameters(flat, shapes)
    mean = action_means(p, data).reshape(b.noise_PCTEN.shape)
    value = values(p, data).reshape(b.advantage_PCTE.shape)
    for agent in range(2):
        total, clip = 0.0, float(tuning.clip_P[agent])
        for index in np.ndindex(*b.advantage_PCTE.shape[1:]):
            i = (agent, *index)
            action = b.mean_PCTEN[i] + 0.5 * b.noise_PCTEN[i]
            old = torch.distributions.Normal(b.mean_PCTEN[i], 0.5).log_prob(action).sum()
            new = torch.distributions.Normal(mean[i], float(p["log_std"][agent].exp())).log_prob(
                action
            )
            ratio = float((new.sum() - old).exp())
            advantage = float(b.advantage_PCTE[i])
            total -= min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)
            total += 0.5 * float(value[i] - b.return_PCTE[i]) ** 2
        std = float(p["log_std"][agent].exp())
        entropy = 3 * float(torch.distributions.Normal(0.0, std).entropy())
        expected = total / 16 - float(tuning.entropy_bonus_P[agent]) * entropy
        assert float(found[agent]) == pytest.approx(expected, abs=1e-5)


def test_a_poisoned_agent_is_marked_and_its_neighbours_keep_their_bits():
    settings = NetworkSettings()
    results = []
    for poison in (False, True):
        flat, shapes, data, b = batch(settings, num_agents=4)
        if poison:
            flat[1, 1] = torch.inf
        optimizer = Adam(*flat.shape)
        tuning = ppo.Tuning(torch.full((4,), 1e-2), torch.full((4,), 0.2), torch.zeros(4))
        healthy = ppo.update(
            flat, shapes, optimizer, data, b, tuning, torch.ones(4, dtype=torch.bool)
        )
        results.append((flat, healthy))
    assert results[0][1].tolist() == [True] * 4
    assert results[1][1].tolist() == [True, False, True, True]
    for agent in (0, 2, 3):
        assert torch.equal(results[0][0][agent], results[1][0][agent])


def test_checkpoints_round_trip_and_refuse_damage(tmp_path):
    tensors = {"weights": torch.randn(5)}
    checkpoint.save(tmp_path / "a", tensors, {"name": "a"})
    checkpoint.save(tmp_path / "a", tensors | {"more": torch.ones(1)}, {"name": "b"})
    loaded, facts = checkpoint.load(tmp_path / "a")
    assert torch.equal(loaded["weights"], tensors["weights"])
    assert facts["name"] == "b"
    (kept,) = tmp_path.glob("a-*.safetensors")
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="expected format 1 with sha256"):
        checkpoint.load(tmp_path / "a")
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        checkpoint.load(tmp_path / "none")
