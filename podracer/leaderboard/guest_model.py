"""The code of a registered guest: MLflow runs this file when a model is loaded ("models from code").

Input: observations as the Gymnasium face gives them. Output: the guest's actions.
"""

from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

from podracer.agents import checkpoint
from podracer.envs.guests import GuestSettings, build_policy
from podracer.envs.spaces import Sizes


class GuestModel(PythonModel):  # type: ignore[misc]
    """A policy that Stable-Baselines3 trained."""

    def load_context(self, context: Any) -> None:
        """Build the declared policy from the tensors that lie in the model's folder."""
        (path,) = Path(context.artifacts["agents"]).glob("*.json")
        weights, facts = checkpoint.load(path.with_suffix(""))
        guest = GuestSettings(**facts["guest"])
        self._policy = build_policy(guest, Sizes(**facts["sizes"]), weights)

    def predict(
        self, context: Any, model_input: np.ndarray, params: dict[str, Any] | None = None
    ) -> np.ndarray:
        """Return the actions of a batch of observations."""
        actions_XN: np.ndarray = self._policy.predict(model_input, deterministic=True)[0]
        return actions_XN


set_model(GuestModel())
