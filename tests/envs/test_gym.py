"""The Gymnasium faces: checkers, autoreset, ends of episodes, and that SB3 trains on them."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_checker import check_env as sb3_check_env
from stable_baselines3.common.env_util import make_vec_env

import podracer.envs.gym as faces
from podracer.envs.backends import numpy_backend
from podracer.envs.policies import ScheduledPolicy
from podracer.envs.rollout import rollout
from podracer.envs.settings import KNOWN_REWARDS, EnvSettings
from podracer.errors import ConfigError
from podracer.market.windows import Window
from tests.conftest import market_of, random_closes

MODES = [{"mode": m} for m in ("weights", "notional", "discrete", "shares")]


@pytest.fixture(scope="module")
def market():
    rng = np.random.default_rng(0)
    closes = random_closes(200, 3)
    closes[:70, 1] = np.nan
    return market_of(closes, rng.normal(size=(200, 3, 2)))


def single(market, **arguments):
    return gymnasium.make("podracer/StockTrading-v0", market=market, **arguments).unwrapped


@pytest.mark.parametrize("name", list(faces.IDS))
@pytest.mark.parametrize("action", [*MODES, {"mode": "weights", "cash_action": True}])
def test_both_checkers_pass_without_a_warning(name, action, market):
    arguments = {"env": {"action": action}} | ({"market": market} if "Stock" in name else {})
    if action["mode"] == "shares" and "Regime" in name:
        arguments["env"]["rewards"] = {"differential_sharpe": {}, "turnover_penalty": {}}
    env = gymnasium.make(name, **arguments).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)
        if not (action["mode"] == "discrete" and env.face.sizes.num_actions == 1):
            sb3_check_env(env, warn=True)


def test_the_module_name_in_the_id_is_enough():
    env = gymnasium.make("podracer.envs.gym:podracer/Planted-v0")
    assert env.reset(seed=1)[0].shape == (10 * 1 + 10 + 11,)


def test_an_episode_equals_the_rollout_of_the_same_decisions(market):
    env = single(
        market,
        window=Window("w", 5, 60),
        env={"episode": {"start": "first"}, "action": {"gain": 2, "no_trade_band": 0}},
    )
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    targets, equity = np.zeros((200, 3)), [1e6]
    for t in range(5, 59):
        action = rng.uniform(-1, 1, 3).astype(np.float32)
        held = np.exp(np.float32(2.0) * action) * market.tradable_DA[t]
        targets[t] = held / held.sum()
        *_, terminated, truncated, info = env.step(action)
        equity.append(info["equity"])
        assert (terminated, truncated) == (False, t == 58)
        assert info["date"] == str(market.dates_D[t + 1])
    policy = ScheduledPolicy(targets, np.ones(200, dtype=bool))
    found = rollout(policy, market, Window("w", 5, 60), EnvSettings(), numpy_backend)
    assert found.equity_RE[:, 0] == pytest.approx(equity[1:], rel=1e-12)


def test_the_reward_is_the_growth_from_close_to_close(market):
    env = single(market, env={"rewards": {"log_return": {}}, "episode": {"start": "first"}})
    env.reset(seed=0)
    before = 1e6
    for _ in range(20):
        _, reward, *_, info = env.step(env.action_space.sample())
        assert reward == pytest.approx(np.log(info["equity"] / before))
        before = info["equity"]


@pytest.fixture
def falling():
    """One asset that loses almost everything on session 5 and then stays."""
    closes = np.full((30, 1), 100.0)
    closes[6:] = 1.0
    return market_of(closes)


def test_ruin_terminates_the_window_truncates_and_both_can_come_at_once(falling):
    free = {"costs": {"commission_bps": 0}, "episode": {"start": "first"}}
    for stop, expected in ((20, [(5, True, False)]), (7, [(5, True, True)])):
        env = single(falling, env=free, window=Window("w", 0, stop))
        env.reset()
        flags = [env.step(np.ones(1))[2:4] for _ in range(6)]
        ended = [(t, *f) for t, f in enumerate(flags) if any(f)]
        assert ended == expected
    env = single(falling, env=free, window=Window("w", 10, 20))
    env.reset()
    flags = [env.step(np.ones(1))[2:4] for _ in range(9)]
    assert [f for f in flags if any(f)] == [(False, True)]
    assert flags[-1] == (False, True)


def test_a_vector_environment_begins_anew_in_the_same_step_and_keeps_the_last_observation(market):
    arguments = {
        "market": market,
        "env": {"episode": {"sessions": 7}},
        "window": Window("w", 0, 100),
    }
    vector = gymnasium.make_vec("podracer/StockTrading-v0", num_envs=5, **arguments)
    assert vector.metadata["autoreset_mode"] == gymnasium.vector.AutoresetMode.SAME_STEP
    vector.reset(seed=3)
    for t in range(1, 22):
        seen, _, terminated, truncated, info = vector.step(vector.action_space.sample())
        assert truncated.all() == (t % 7 == 0)
        assert not terminated.any()
        if truncated.any():
            last = np.stack(info["final_obs"])
            assert info["_final_obs"].all()
            assert (info["equity"] == 1e6).all()
            assert (info["final_info"]["equity"] != 1e6).all()
            assert (seen[:, 0] == 1).all()  # all cash
            assert (last[:, 0] < 0.5).all()


def test_an_environment_does_not_depend_on_its_neighbours(market):
    """Env i of a batch of 2, 8: the same starts and rewards."""
    walks = {}
    for num_envs in (2, 8):
        vector = gymnasium.make_vec("podracer/StockTrading-v0", num_envs=num_envs, market=market)
        first, _ = vector.reset(seed=11)
        rng = np.random.default_rng(0)
        rewards = []
        for _ in range(60):
            actions = np.repeat(rng.uniform(-1, 1, (1, 3)), num_envs, axis=0)
            rewards.append(vector.step(actions)[1][:2])
        walks[num_envs] = first[:2], np.array(rewards)
    assert np.array_equal(walks[2][0], walks[8][0])
    assert np.array_equal(walks[2][1], walks[8][1])
    assert len(np.unique(walks[8][1])) > 60


def test_the_vector_face_is_single_faces_side_by_side(market):
    env = {"episode": {"sessions": 20}}
    vector = gymnasium.make_vec("podracer/StockTrading-v0", num_envs=3, market=market, env=env)
    alone = [single(market, env=env) for _ in range(3)]
    first, _ = vector.reset(seed=5)
    assert np.array_equal(first, [env.reset(seed=5 + i)[0] for i, env in enumerate(alone)])
    rng = np.random.default_rng(1)
    for _ in range(10):
        actions = rng.uniform(-1, 1, (3, 3)).astype(np.float32)
        seen, reward, *_ = vector.step(actions)
        each = [env.step(a) for env, a in zip(alone, actions, strict=True)]
        assert np.array_equal(seen, [e[0] for e in each])
        assert reward == pytest.approx([e[1] for e in each], rel=1e-12)


def test_one_ruined_account_begins_anew_on_its_cohorts_session(falling):
    vector = gymnasium.make_vec(
        "podracer/StockTrading-v0", num_envs=2, cohorts=1, market=falling, window=Window("w", 0, 20),
        env={"costs": {"commission_bps": 0}, "episode": {"start": "first"},
             "action": {"mode": "notional", "max_trade_fraction": 1.0}},
    )  # fmt: skip
    vector.reset()
    for t in range(8):
        _, _, terminated, truncated, info = vector.step(np.array([[1.0], [0.0]]))
        assert terminated.tolist() == [t == 5, False]
        assert not truncated.any()
        if t == 5:
            assert info["equity"].tolist() == [1e6, 1e6]
            assert info["final_info"]["equity"].tolist() == [10_000, 1e6]
    assert vector.face.session_E.tolist() == [8, 8]


def test_stacked_observations_are_the_last_ones_newest_last(market):
    env = single(market, stack=3)
    first, _ = env.reset(seed=0)
    width = len(first) // 3
    seen = [first[-width:]] * 3
    assert np.array_equal(first, np.concatenate(seen))
    for _ in range(5):
        stacked, *_ = env.step(env.action_space.sample())
        seen = [*seen[1:], stacked[-width:]]
        assert np.array_equal(stacked, np.concatenate(seen))
        assert not np.array_equal(seen[-1], seen[-2])


def test_the_previous_action_is_seen_and_is_zero_at_the_start(market):
    env = single(
        market, env={"action": {"mode": "discrete"}, "observations": {"previous_action": {}}}
    )
    first, _ = env.reset(seed=0)
    assert first.tolist() == [0, 0, 0]
    assert env.step(np.array([0, 1, 2]))[0].tolist() == [-1, 0, 1]


def test_actions_outside_the_box_are_clipped(market):
    equities = []
    for action in ([9.0, -9.0, 0.0], [1.0, -1.0, 0.0]):
        env = single(market, env={"action": {"mode": "notional"}, "episode": {"start": "first"}})
        env.reset()
        equities.append([env.step(np.array(action))[4]["equity"] for _ in range(30)])
    assert equities[0] == equities[1]


def test_cost_scenarios_are_drawn_by_episode_and_charge_what_they_say(market):
    env = single(market, env={"episode": {"start": "first", "cost_scales": [0, 4]},
                              "action": {"mode": "notional"}})  # fmt: skip
    costs = set()
    for seed in range(12):
        env.reset(seed=seed)
        env.step(np.ones(3))
        bill = env.face.env.costs()
        costs.add(round(float(bill.cost_E[0] / bill.traded_E[0]), 6))
    assert costs == {0.0, 0.004}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"market": "us21"},
            "there is no market 'us21'. Give a folder of data/features, or one of us20",
        ),
        ({"window": "test"}, "window: expected train, selection, lockbox or a Window, got 'test'"),
        ({"stack": 0}, "stack: expected 1 or more observations, got 0"),
        (
            {"env": {"episode": {"sessions": 500}}},
            r"env\.episode\.sessions: 500 steps do not fit window 'train'",
        ),
    ],
)
def test_what_cannot_be_opened_is_refused_by_name(arguments, message, market):
    with pytest.raises(ConfigError, match=message):
        single(**{"market": market} | arguments)
    with pytest.raises(ConfigError, match="num_envs 4 cannot be divided into 3 cohorts"):
        faces.open_face(market, num_envs=4, cohorts=3)


def test_stable_baselines_trains_unchanged(market):
    def make():
        return single(market, env={"episode": {"sessions": 30}})

    ppo = PPO("MlpPolicy", make_vec_env(make, n_envs=2), n_steps=32, batch_size=32, device="cpu")
    ppo.learn(128)
    assert ppo.num_timesteps >= 128
    sac = SAC("MlpPolicy", make(), learning_starts=20, batch_size=16, buffer_size=500, device="cpu")
    sac.learn(60)
    assert sac.num_timesteps == 60


def test_the_differing_reward_functors_are_all_accepted(market):
    for name in KNOWN_REWARDS:
        env = single(market, env={"rewards": {name: {}}, "episode": {"start": "first"}})
        env.reset(seed=0)
        assert all(np.isfinite(env.step(env.action_space.sample())[1]) for _ in range(30))


@pytest.mark.parametrize(
    ("mode", "action", "message"),
    [
        ("weights", [0, np.nan, 0], "action 1 of environment 0: expected a number, got nan"),
        ("shares", [0, 0, np.inf], "action 2 of environment 0: expected a number, got inf"),
        ("weights", [0, 0, 0, 0], r"expected actions of shape \(1, 3\), got \(1, 4\)"),
        ("discrete", [0, 3, 1], "action 1 of environment 0: expected 0, 1 or 2, got 3"),
    ],
)
def test_what_is_no_action_is_refused_and_changes_nothing(market, mode, action, message):
    env = single(market, env={"action": {"mode": mode}})
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(np.array(action, dtype=np.float64))
    assert env.face.equity_E[0] == 1e6
    env.step(np.ones(3))


def test_an_episode_that_has_ended_or_not_begun_is_not_stepped(market):
    env = single(market, env={"episode": {"sessions": 2}})
    with pytest.raises(ValueError, match="its episode has ended or not begun; call reset first"):
        env.step(np.zeros(3))
    env.reset()
    env.step(np.zeros(3))
    assert env.step(np.zeros(3))[3]
    with pytest.raises(ValueError, match="its episode has ended or not begun; call reset first"):
        env.step(np.zeros(3))
    vector = gymnasium.make_vec("podracer/StockTrading-v0", num_envs=2, market=market)
    with pytest.raises(ValueError, match="its episode has ended or not begun"):
        vector.step(np.zeros((2, 3)))


def test_arguments_of_the_wrong_kind_are_refused_by_name(market):
    with pytest.raises(ConfigError, match=r"num_envs and cohorts are for gymnasium\.make_vec"):
        single(market, num_envs=3)
    with pytest.raises(ConfigError, match="num_envs and cohorts: expected 1 or more, got 0 and 0"):
        faces.open_face(market, num_envs=0)
    with pytest.raises(
        ConfigError, match=r"env\.costs\.comission_bps: .*See `podracer env schema`"
    ):
        single(market, env={"costs": {"comission_bps": 1}})
    with pytest.raises(ConfigError, match=r"^env: .*got '5'"):
        single(market, env=5)
    with pytest.raises(
        ConfigError, match="window: expected train, selection, lockbox or a Window, got 5"
    ):
        single(market, window=5)
    with pytest.raises(ConfigError, match="windows: expected a train window to scale on, got w"):
        single(market, windows={"w": Window("w", 0, 50)}, window="w")
    assert len(repr(market)) < 60


def test_costs_vary_in_training_only(market):
    cheap = {"costs": {"commission_bps": 100}, "episode": {"start": "first", "cost_scales": [0]},
             "action": {"mode": "notional"}}  # fmt: skip
    for window, rate in (("train", 0.0), ("lockbox", 0.01)):
        env = single(market, env=cheap, window=window)
        env.reset()
        env.step(np.ones(3))
        bill = env.face.env.costs()
        assert bill.cost_E[0] / bill.traded_E[0] == pytest.approx(rate, rel=1e-3)


def test_nothing_was_traded_since_a_reset(market):
    env = single(market)
    env.reset()
    env.step(np.ones(3))
    assert env.face.env.costs().traded_E[0] > 0
    env.reset()
    assert env.face.env.costs().traded_E[0] == 0
