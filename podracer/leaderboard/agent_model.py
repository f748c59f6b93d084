"""The code of a registered model: MLflow runs this file when a model is loaded ("models from code").

Input: rows of cash and holdings as fractions of equity (1 + A), asset features (A·K) and unscaled
market features (F) of as many sessions as the agents remember, the present one last. Output: the
weights (A) to hold after the next fill.
"""

from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

from podracer.envs.frozen_agents import FrozenAgents, load_agents


class AgentModel(PythonModel):  # type: ignore[misc]
    """One agent, or the average of an ensemble."""

    def load_context(self, context: Any) -> None:
        """Load the checkpoints that lie in the model's folder."""
        folder = Path(context.artifacts["agents"])
        self._agents: FrozenAgents = load_agents(
            [path.with_suffix("") for path in sorted(folder.glob("*.json"))]
        )

    def predict(
        self, context: Any, model_input: np.ndarray, params: dict[str, Any] | None = None
    ) -> np.ndarray:
        """Return the desired weights of a batch of observations."""
        return self._agents.desired_weights(model_input)


set_model(AgentModel())
