"""Policies that Stable-Baselines3 trained enter a finished tournament; a malicious file does not."""

import io
import pickle
import sys
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DDPG, PPO, SAC, TD3

from podracer.envs import guests
from podracer.envs.guests import GuestSettings, build_policy, read_weights, seat
from podracer.envs.rollout import rollout
from podracer.envs.settings import EnvSettings
from podracer.envs.spaces import Sizes
from podracer.errors import CheckpointError, ConfigError
from podracer.market.windows import Window
from podracer.pipeline.guests import declare
from tests.conftest import market_of, random_closes

ALGORITHMS = {"ppo": PPO, "a2c": A2C, "sac": SAC, "td3": TD3, "ddpg": DDPG}
SMALL = {"sac", "td3", "ddpg"}


def face(market, window, settings, stack=1):
    fixed = settings.model_copy(
        update={"episode": settings.episode.model_copy(update={"start": "first"})}
    )
    return gymnasium.make(
        "podracer/StockTrading-v0", market=market, env=fixed, window=window, stack=stack
    ).unwrapped


def model(algorithm, env, **kwargs):
    extra = {"n_steps": 32, "batch_size": 32} if algorithm == "ppo" else {}
    if algorithm in SMALL:
        extra = {"learning_starts": 10, "buffer_size": 200, "batch_size": 8}
    return ALGORITHMS[algorithm]("MlpPolicy", env, device="cpu", seed=0, **extra, **kwargs)


@pytest.fixture(scope="module")
def market():
    rng = np.random.default_rng(0)
    closes = random_closes(160, 3)
    closes[40:44, 1] = np.nan
    return market_of(closes, rng.normal(size=(160, 3, 2)))


# The faces scale on the train window: 60 % of the sessions.
TRAIN, OTHER = Window("train", 0, 96), Window("w", 96, 150)


@pytest.mark.parametrize(
    ("algorithm", "mode"),
    [
        ("ppo", "weights"),
        ("a2c", "notional"),
        ("sac", "weights"),
        ("td3", "notional"),
        ("ddpg", "weights"),
    ],
)
def test_the_evaluators_returns_are_those_of_the_models_own_predict_loop(
    algorithm, mode, market, tmp_path
):
    settings = EnvSettings(action={"mode": mode})
    stack = 2 if algorithm == "ppo" else 1
    trained = model(
        algorithm, face(market, "train", settings, stack), policy_kwargs={"net_arch": [16, 8]}
    )
    trained.learn(40)
    trained.save(tmp_path / "model.zip")
    env = face(market, OTHER, settings, stack)
    seen, _ = env.reset()
    equity = [1e6]
    truncated = False
    while not truncated:
        seen, _, _, truncated, info = env.step(trained.predict(seen, deterministic=True)[0])
        equity.append(info["equity"])
    guest = GuestSettings(algorithm=algorithm, net_arch=(16, 8), stack=stack)
    policy = seat(guest, read_weights(tmp_path / "model.zip"), market, TRAIN, settings)
    for _ in range(2):  # the second time it has a past to forget
        found = rollout(policy, market, OTHER, settings)
        assert found.equity_RE[:, 0] == pytest.approx(equity[1:], rel=1e-6)
    assert len(set(equity)) > 10


def test_a_discrete_guest_trades_as_in_the_face(market, tmp_path):
    settings = EnvSettings(action={"mode": "discrete"})
    trained = model("ppo", face(market, "train", settings))
    trained.save(tmp_path / "m.zip")
    weights = read_weights(tmp_path / "m.zip")
    policy = seat(GuestSettings(algorithm="ppo"), weights, market, TRAIN, settings)
    assert rollout(policy, market, OTHER, settings).has_traded_E.all()
    with pytest.raises(ConfigError, match="algorithm: sac has no discrete actions"):
        seat(GuestSettings(algorithm="sac"), weights, market, TRAIN, settings)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def zip_of(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "."), data)
    return path


def saved(value, **options):
    data = io.BytesIO()
    torch.save(value, data, **options)
    return data.getvalue()


def test_a_malicious_zip_runs_nothing(tmp_path, market):
    trap = tmp_path / "sprung"
    bomb = pickle.dumps(Bomb(trap))
    in_weights = zip_of(tmp_path / "a.zip", policy__pth=saved({"w": Bomb(trap)}))
    with pytest.raises(
        CheckpointError, match=r"its policy.pth holds more than tensors.* It was not loaded"
    ):
        read_weights(in_weights)
    raw = zip_of(tmp_path / "b.zip", policy__pth=bomb)
    with pytest.raises(CheckpointError, match="holds more than tensors, or is damaged"):
        read_weights(raw)
    env = face(market, "train", EnvSettings())
    good = model("ppo", env)
    beside = zip_of(
        tmp_path / "c.zip", policy__pth=saved(good.policy.state_dict()), data=bomb,
        pytorch_variables__pth=bomb,
    )  # fmt: skip
    policy = seat(
        GuestSettings(algorithm="ppo"), read_weights(beside), market, TRAIN, EnvSettings()
    )
    assert rollout(policy, market, OTHER, EnvSettings()).has_traded_E.all()
    assert not trap.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "not a model that Stable-Baselines3 saved"),
        (b"not a zip", "not a model that Stable-Baselines3 saved"),
        ({}, r"not a model that Stable-Baselines3 saved, or damaged \(.*policy.pth"),
        ({"policy__pth": saved([1, 2])}, "is no dictionary of tensors by name"),
        ({"policy__pth": saved({1: torch.zeros(2)})}, "is no dictionary of tensors by name"),
        (
            {"policy__pth": saved({"a": torch.tensor([1.0, np.nan])})},
            "tensor 'a' holds numbers that are not finite",
        ),
        ({"policy__pth": b"torn"}, "holds more than tensors, or is damaged"),
    ],
)
def test_files_that_are_no_models_are_refused_by_name(tmp_path, content, message):
    path = tmp_path / "m.zip"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        zip_of(path, **content)
    with pytest.raises(CheckpointError, match=message):
        read_weights(path)


def test_a_member_that_unpacks_to_too_much_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(guests, "LARGEST_FILE", 1_000)
    path = zip_of(tmp_path / "m.zip", policy__pth=bytes(5_000))
    with pytest.raises(
        CheckpointError, match=r"policy\.pth unpacks to 5,000 bytes, more than 1,000"
    ):
        read_weights(path)


def test_without_stable_baselines_guests_are_refused_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(
        ConfigError, match=r"guests need Stable-Baselines3\. Install it: pip install"
    ):
        build_policy(GuestSettings(algorithm="ppo"), Sizes(10, 20, 3, "weights"), {})


def test_a_torn_archive_is_refused(tmp_path, market):
    model("ppo", face(market, "train", EnvSettings())).save(tmp_path / "m.zip")
    with zipfile.ZipFile(tmp_path / "m.zip") as archive:
        at = archive.getinfo("policy.pth").header_offset
    data = bytearray((tmp_path / "m.zip").read_bytes())
    data[at + 60 : at + 900] = bytes(840)
    (tmp_path / "m.zip").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"m\.zip: (not a model|its policy\.pth)"):
        read_weights(tmp_path / "m.zip")


def test_weights_of_another_network_are_refused_with_what_to_declare(market, tmp_path):
    model("ppo", face(market, "train", EnvSettings())).save(tmp_path / "m.zip")
    weights = read_weights(tmp_path / "m.zip")
    with pytest.raises(
        CheckpointError, match=r"the weights are not those of ppo with net_arch \(8,\) on"
    ):
        build_policy(
            GuestSettings(algorithm="ppo", net_arch=(8,)), Sizes(10, 20, 3, "weights"), weights
        )


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (("dqn", None, None, 1, None), r"--algorithm: input should be 'ppo', 'a2c', 'sac', 'td3' or 'ddpg', got 'dqn'\."),
        (("ppo", "64,x", None, 1, None), "--net-arch: input should be a valid integer"),
        (("ppo", "64", "gelu", 1, None), r"--activation: input should be 'tanh' or 'relu', got 'gelu'\."),
        (("ppo", None, None, 0, None), "--stack: input should be greater than 0, got 0"),
        (("ppo", None, None, 1, "../x"), r"--name \.\./x: expected letters, digits, - and _"),
    ],
)  # fmt: skip
def test_wrong_declarations_are_named_by_their_option(declaration, message):
    algorithm, net_arch, activation, stack, name = declaration
    with pytest.raises(ConfigError, match=message):
        declare(Path("mine.zip"), algorithm, net_arch, activation, stack, name)
