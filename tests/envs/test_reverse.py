"""The reverse adapter against Gymnasium's own environments, stepped one by one."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from podracer.envs.reverse import GymnasiumEnvs
from podracer.errors import ConfigError


def one_by_one(name, num_envs, actions, seed, to_action):
    """Plain environments, each reset by hand when it ends."""
    envs = [gymnasium.make(name) for _ in range(num_envs)]
    seen = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
    rows = [[(s, s, 0.0, False, False) for s in seen]]
    for action in actions:
        row = []
        for env, a in zip(envs, action, strict=True):
            final, reward, terminated, truncated, _ = env.step(to_action(a))
            seen = env.reset()[0] if terminated or truncated else final
            row.append((seen, final, reward, terminated, truncated))
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("name", "num_steps"), [("CartPole-v1", 120), ("Pendulum-v1", 230), ("Acrobot-v1", 510)]
)
def test_a_batch_is_its_environments_one_by_one_over_the_ends_of_episodes(name, num_steps):
    rng = np.random.default_rng(0)
    envs = GymnasiumEnvs(name, 3)
    if envs.is_discrete:
        actions = rng.integers(0, envs.num_actions, (num_steps, 3))
        expected = one_by_one(name, 3, actions, 7, int)
    else:
        actions = rng.uniform(-1.2, 1.2, (num_steps, 3, 1))
        expected = one_by_one(
            name, 3, actions, 7, lambda a: np.clip(a, -1, 1).astype(np.float32) * 2
        )
    assert envs.reset(7) == pytest.approx(np.array([row[0] for row in expected[0]]), abs=1e-6)
    ended = 0
    for action, row in zip(actions, expected[1:], strict=True):
        found = envs.step(action)
        for e, (seen, final, reward, terminated, truncated) in enumerate(row):
            assert found.observation_EO[e] == pytest.approx(seen, abs=1e-5)
            assert found.final_EO[e] == pytest.approx(final, abs=1e-5)
            assert found.reward_E[e] == pytest.approx(reward, abs=1e-5)
            assert (found.terminated_E[e], found.truncated_E[e]) == (terminated, truncated)
        ended += found.done_E.sum()
    assert ended > 0
    envs.close()


class Odd(gymnasium.Env):
    """Spaces of our choice."""

    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action


BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (spaces.Discrete(3), BOX, r"expected observations in a Box, got Discrete\(3\)"),
        (
            BOX,
            spaces.Box(-np.inf, np.inf, (2,)),
            "expected Discrete actions or a Box with finite bounds",
        ),
        (BOX, spaces.MultiBinary(2), "expected Discrete actions or a Box with finite bounds"),
    ],
)
def test_spaces_that_no_agent_takes_are_refused(observation, action, message):
    with pytest.raises(ConfigError, match=message):
        GymnasiumEnvs(lambda: Odd(observation, action), 2)


def test_ours_through_its_own_face_and_back():
    import podracer.envs.gym  # noqa: F401

    envs = GymnasiumEnvs("podracer/Planted-v0", 2)
    assert envs.reset(0).shape == (2, envs.observation_width) == (2, 31)
    assert envs.step(np.zeros((2, 10))).reward_E.shape == (2,)
