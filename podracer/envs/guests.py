"""Policies that Stable-Baselines3 trained, as guests of the evaluator.

Of a `model.zip` only the tensors of `policy.pth` are read, and those without unpickling objects; the
policy itself is built from what its owner declares. Its other members, pickles among them, are never
decoded.

Shapes: A assets, E environments, O columns of an observation, N actions.
"""

import io
import warnings
import zipfile
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from podracer.envs.backends import Decision
from podracer.envs.declared import observation_tables, weights_only
from podracer.envs.faces import FlatObservations, decide, flat_observations
from podracer.envs.settings import EnvSettings
from podracer.envs.spaces import Sizes, single_spaces
from podracer.errors import CheckpointError, ConfigError
from podracer.market.market import Market
from podracer.market.windows import Window
from podracer.settings import Settings

WEIGHTS = "policy.pth"
LARGEST_FILE = 2**31


class GuestSettings(Settings):
    """What the owner of a model declares of it."""

    algorithm: Literal["ppo", "a2c", "sac", "td3", "ddpg"] = Field(
        description="Algorithm that trained it, with SB3's MlpPolicy."
    )
    net_arch: tuple[Annotated[int, Field(ge=1, le=4_096)], ...] | None = Field(
        None,
        max_length=8,
        description="Hidden layers of actor and critic; SB3's default for the algorithm if null.",
    )
    activation: Literal["tanh", "relu"] | None = Field(
        None, description="SB3's default for the algorithm if null."
    )
    stack: PositiveInt = Field(1, description="Observations side by side, as in the face.")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a model's policy, and nothing else of the file.

    Raises:
        CheckpointError: if it is no such file, or its policy holds anything but tensors.
    """
    try:
        data = io.BytesIO(_member(path))
    except CheckpointError:
        raise
    except Exception as error:  # a torn or hostile archive fails in any way
        raise CheckpointError(
            f"{path}: not a model that Stable-Baselines3 saved, or damaged ({error}). "
            f"Give the zip of model.save()."
        ) from error
    try:
        with warnings.catch_warnings(action="ignore"):
            weights = torch.load(data, map_location="cpu", weights_only=True)
    except Exception as error:  # so does what is in it
        raise CheckpointError(
            f"{path}: its {WEIGHTS} holds more than tensors, or is damaged ({type(error).__name__}). "
            f"It was not loaded. Save the model again with model.save()."
        ) from error
    _require_tensors(path, weights)
    return dict(weights)


def _member(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo(WEIGHTS).file_size
        if size > LARGEST_FILE:
            raise CheckpointError(
                f"{path}: its {WEIGHTS} unpacks to {size:,} bytes, more than {LARGEST_FILE:,}. "
                f"This is no policy of the kind that can be entered."
            )
        return archive.read(WEIGHTS)


def _require_tensors(path: Path, weights: Any) -> None:
    if not isinstance(weights, dict) or not all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in weights.items()
    ):
        raise CheckpointError(
            f"{path}: its {WEIGHTS} is no dictionary of tensors by name. It was not loaded. "
            f"Give the zip of model.save()."
        )
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(
                f"{path}: tensor {name!r} holds numbers that are not finite, so the policy cannot act. "
                f"Train it again."
            )


def build_policy(guest: GuestSettings, sizes: Sizes, weights: dict[str, Tensor]) -> Any:
    """Return SB3's policy of the declared kind with these weights.

    Raises:
        ConfigError: if Stable-Baselines3 is not installed, or does not act in the action mode.
        CheckpointError: if the weights are those of another network.
    """
    try:
        from stable_baselines3 import a2c, ppo, sac, td3
    except ImportError as error:
        raise ConfigError(
            "guests need Stable-Baselines3. Install it: pip install 'podracer[sb3]'."
        ) from error
    if sizes.mode == "discrete" and guest.algorithm not in ("ppo", "a2c"):
        raise ConfigError(f"algorithm: {guest.algorithm} has no discrete actions. Use ppo or a2c.")
    classes = {
        "ppo": ppo.MlpPolicy,
        "a2c": a2c.MlpPolicy,
        "sac": sac.MlpPolicy,
        "td3": td3.MlpPolicy,
        "ddpg": td3.MlpPolicy,
    }
    declared: dict[str, Any] = {}
    if guest.net_arch is not None:
        declared["net_arch"] = list(guest.net_arch)
    if guest.activation is not None:
        declared["activation_fn"] = {"tanh": nn.Tanh, "relu": nn.ReLU}[guest.activation]
    if guest.algorithm == "ddpg":
        declared["n_critics"] = 1
    observation, action = single_spaces(sizes)
    policy = classes[guest.algorithm](observation, action, lambda _: 0.0, **declared)
    try:
        policy.load_state_dict(weights)
    except RuntimeError as error:
        problems = "; ".join(line.strip()[:100] for line in str(error).splitlines()[1:3])
        raise CheckpointError(
            f"the weights are not those of {guest.algorithm} with net_arch "
            f"{guest.net_arch or 'by default'} on {observation.shape[0]} inputs ({problems}). Declare the "
            f"network it was trained with, and train on the environment of this params.yaml."
        ) from error
    policy.set_training_mode(False)
    return policy


class GuestPolicy:
    """A guest on one account; sees and acts as in the Gymnasium face."""

    num_policies = 1

    def __init__(
        self,
        policy: Any,
        sizes: Sizes,
        market: Market,
        observations: FlatObservations,
        settings: EnvSettings,
    ) -> None:
        """Take the policy and what it sees."""
        self.policy, self.sizes = policy, sizes
        self._visible_DA = np.asarray(market.tradable_DA)
        self._observations = observations
        self._settings = settings
        stack = sizes.width // observations.width
        self._stacked_KO = np.zeros((stack, observations.width), dtype=np.float32)
        self._last = -1

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Return what the guest wants after the close of `session`."""
        seen_O = self._observations.at(np.array([session]), weights_only(weights_AE))[0]
        if session != self._last + 1:
            self._stacked_KO[:] = seen_O  # another rollout
        self._stacked_KO = np.roll(self._stacked_KO, -1, axis=0)
        self._stacked_KO[-1] = seen_O
        self._last = session
        action_1N, _ = self.policy.predict(self._stacked_KO.reshape(1, -1), deterministic=True)
        return decide(action_1N, self._visible_DA[session][:, None], self._settings)


def seat(
    guest: GuestSettings,
    weights: dict[str, Tensor],
    market: Market,
    train: Window,
    settings: EnvSettings,
) -> GuestPolicy:
    """Return a guest as a policy on a market, with what it sees scaled on the training window."""
    tables = observation_tables(market, settings)
    observations = flat_observations(tables, tables.fit(train))
    sizes = observations.sizes(guest.stack, settings.action)
    return GuestPolicy(build_policy(guest, sizes, weights), sizes, market, observations, settings)
