"""What agents are told; free of torch, so that reading a configuration stays quick."""

from pydantic import Field

from podracer.settings import Settings


class PpoHyperparameters(Settings):
    """What may differ between the agents of one pod; the generator mutates these."""

    learning_rate: float = Field(5e-3, gt=0, description="Adam's step size.")
    discount: float = Field(0.95, ge=0, lt=1, description="Discount of a reward one session later.")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="Advantage smoothing, with a critic.")
    clip: float = Field(
        0.2, gt=0, lt=1, description="Largest change of the ratio that is rewarded."
    )
    entropy_bonus: float = Field(0.0, ge=0, description="Weight of the policy's entropy.")
    initial_std: float = Field(0.5, gt=0, description="Standard deviation of exploration at birth.")
    gain: float = Field(1.0, gt=0, description="Target weights are softmax(gain x score).")
    speed: float = Field(
        0.3,
        gt=0,
        le=1,
        description="Fraction of the way to its target an agent trades each session.",
    )


class PpoSettings(Settings):
    """What all agents of a pod share."""

    epochs: int = Field(4, ge=1, description="Passes over each batch.")
    minibatches: int = Field(4, ge=1, description="Minibatches of whole cohorts in a pass.")


class NetworkSettings(Settings):
    """What the agents of a pod are made of; 0 switches a part off."""

    head: bool = Field(True, description="Use the per-asset head that all assets share.")
    head_hidden: int = Field(
        0, ge=0, le=256, description="Hidden units of the head beside its linear part."
    )
    mlp_hidden: int = Field(
        0, ge=0, le=1024, description="Width of the two-layer MLP that looks at everything."
    )
    critic_hidden: int = Field(
        0,
        ge=0,
        le=1024,
        description="Width of the critic's two layers; 0 uses the same-day mean of the cohort.",
    )
