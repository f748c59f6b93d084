"""One configuration: line numbers, nearest keys, hash."""

import json
from pathlib import Path

import pytest

from podracer.config import PodracerSettings, explain, load_settings
from podracer.errors import ConfigError

PARAMS = Path(__file__).parents[1] / "params.yaml"


def load(tmp_path, text, *overrides):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    return load_settings(path, overrides)


WINDOWS = "windows: {train: 8y, selection: 5y, lockbox: 5y}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WINDOWS + "env:\n  costs:\n    comission_bps: 3\n", r"params\.yaml:4: 'env\.costs\.comission_bps' is not a setting\. Did you mean 'env\.costs\.commission_bps'\?"),
        (WINDOWS + "zzz: 3\n", r"params\.yaml:2: 'zzz' is not a setting\. Known here: name, seed"),
        (WINDOWS + "env:\n  costs:\n    commission_bps: -3\n", r"params\.yaml:4: env\.costs\.commission_bps: input should be greater than or equal to 0, got '-3'"),
        (WINDOWS + "pod:\n  agents: 7\n", r"params\.yaml:3: pod\.agents: must be even, got 7"),
        (WINDOWS + "name: Bad Name\n", r"params\.yaml:2: name: string should match pattern"),
        (WINDOWS + "pod: {cohorts: 2}\n", r"pod\.ppo\.minibatches 4 exceeds pod\.cohorts 2"),
        (WINDOWS + "data: {source: file}\n", r"params\.yaml:2: data\.source: file needs a path"),
        (WINDOWS + "schedule: {cron: nonsense}\n", r"params\.yaml:2: schedule\.cron: 'nonsense' is not a cron line"),
        (WINDOWS + "schedule: {timezone: Mars/Base}\n", r"there is no time zone 'Mars/Base'"),
        (WINDOWS + "data: {tickers: []}\n", r"params\.yaml:2: data\.tickers: "),
        (WINDOWS + "data: {tickers: [A, B, A]}\n", r"params\.yaml:2: data\.tickers names 'A' twice"),
        (WINDOWS + "pod: {horizon_bars: 99}\n", r"windows\.embargo_sessions 60 is shorter than the 99 of pod\.horizon_bars and"),
        (WINDOWS + "pod:\n  network: {memory: gru, mlp_hidden: 8}\n", r"windows\.embargo_sessions 60 is shorter than the 64 of"),
        (WINDOWS + "pod:\n  network: {memory: stack, memory_bars: 8}\n", r"pod\.network\.memory: stack is read by the MLP"),
        (WINDOWS + "pod:\n  algorithm: td3\n  network: {memory: lstm, mlp_hidden: 8, critic_hidden: 8, memory_bars: 8}\n", r"pod\.network\.memory: lstm is trained on whole stretches"),
        ("windows: {train: 2005-02-30 .. 2006-01-01, selection: 5y, lockbox: 5y}\n", r"params\.yaml:1: windows\.train: 2005-02-30 is no date: day"),
        (WINDOWS + "env:\n  action: {mode: discrete}\npod:\n  algorithm: td3\n", r"params\.yaml:5: pod\.algorithm: td3 needs continuous actions"),
        (WINDOWS + "pod:\n  algorithm: dqn\n", r"params\.yaml:3: pod\.algorithm: dqn chooses among a few actions"),
        (WINDOWS + "pod:\n  algorithm: sac\n", r"pod\.network\.critic_hidden: sac learns from critics; set it above 0"),
        (WINDOWS + "env:\n  action: {mode: discrete}\npod:\n  algorithm: dqn\n", r"pod\.replay\.duelling: the value comes from the MLP"),
        (WINDOWS + "pod:\n  algorithm: a2c\nhyperparameters:\n  clip: 0.1\n", r"params\.yaml:5: hyperparameters\.clip: a2c does not read it here; it reads discount, entropy_bonus"),
        (WINDOWS + "tournament:\n  ranges: {target_rate: [0.1, 0.2]}\n", r"tournament\.ranges\.target_rate: ppo does not read it here"),
        (WINDOWS + "pod:\n  ppo: {minibatches: 3}\n", r"pod\.ppo\.minibatches 3 does not divide pod\.cohorts 16: .*; use 2"),
        (WINDOWS + "pod:\n  replay: {capacity_steps: 100}\n", r"pod\.replay\.capacity_steps 100 is less than a batch of 256"),
        (WINDOWS + "pod:\n  algorithm: td3\n  steps: 1000\n  network: {critic_hidden: 8}\n", r"pod\.replay\.warmup_steps 1000 is not below pod\.steps 1000: nothing would be learnt"),
        (WINDOWS + "pod:\n  replay: {updates_per_step: 1.0e+9}\n", r"pod\.replay\.updates_per_step: input should be less than or equal to 64"),
        (WINDOWS + "pod:\n  algorithm: td3\n  network: {critic_hidden: 8}\n  replay: {updates_per_step: 1.0e-6}\n", r"params\.yaml:5: pod\.replay\.updates_per_step 1e-06 does not make one update"),
        (WINDOWS + "pod:\n  replay: {batch_size: 64}\n", r"params\.yaml:3: pod\.replay\.batch_size: it is read only with pod\.algorithm ddpg or td3 or sac or dqn; leave it out, or set it to 256"),
        (WINDOWS + "pod:\n  algorithm: td3\n  network: {critic_hidden: 8}\n  ppo: {epochs: 2}\n", r"pod\.ppo\.epochs: it is read only with pod\.algorithm ppo"),
        (WINDOWS + "pod:\n  network: {head: false, head_hidden: 8, mlp_hidden: 8}\n", r"pod\.network\.head_hidden: it is read only with pod\.network\.head true"),
        (WINDOWS + "pod:\n  network: {activation: relu}\n", r"pod\.network\.activation: it is read only with pod\.network\.mlp_hidden or critic_hidden above 0"),
        (WINDOWS + "pod:\n  network: {mlp_hidden: 64, precision: bfloat16}\n", r"pod\.network\.precision: it is read only with pod\.network\.mlp_hidden or critic_hidden from 128 on"),
        (WINDOWS + "pod:\n  network: {memory_bars: 8}\n", r"pod\.network\.memory_bars: it is read only with pod\.network\.memory stack, gru or lstm"),
        (WINDOWS + "pod:\n  network: {memory: stack, memory_bars: 8, mlp_hidden: 8, memory_hidden: 8}\n", r"pod\.network\.memory_hidden: it is read only with pod\.network\.memory gru or lstm"),
        (WINDOWS + "pod:\n  ppo: {normalise_advantages: false}\n  algorithm: ddpg\n  network: {critic_hidden: 8}\n", r"pod\.ppo\.normalise_advantages: .* leave it out, or set it to true"),
        (WINDOWS + "tournament:\n  ranges: {clip: [0.1, 1.5]}\n", r"params\.yaml:2: tournament\.ranges\.clip: input should be less than 1, got 1\.5"),
        (WINDOWS + "hyperparameters: {gae_lambda: 0.5}\n", r"hyperparameters\.gae_lambda: ppo does not read it here"),
        (WINDOWS + "env:\n  action: {mode: notional}\nhyperparameters: {speed: 0.5}\n", r"hyperparameters\.speed: ppo does not read it here"),
        (WINDOWS + "pod:\n  algorithm: reinforce\n", r"pod\.algorithm: input should be 'ppo', 'a2c'"),
        (WINDOWS + "env:\n  observations:\n    asset_features: {}\n    previous_action:\n", r"params\.yaml:5: env\.observations\.previous_action: it reads more"),
        (WINDOWS + "env:\n  observations: {cash: {}}\n", r"pod\.network\.head: it reads asset columns, and env\.observations names none"),
        (WINDOWS + "env: {action: {mode: shares}}\n", r"params\.yaml:2: env\.action\.mode: what an order of shares is worth depends"),
        (WINDOWS + "env: {cash_rate: 0.02}\n", r"params\.yaml:2: env\.cash_rate: scores and Sharpe ratios take cash to earn nothing"),
        (WINDOWS + "env: {rewards: {}}\n", r"params\.yaml:2: env\.rewards names none; choose of mean_variance"),
        (WINDOWS + "env: {rewards: [excess]}\n", r"params\.yaml:2: env\.rewards: "),
        (WINDOWS + "env: {costs: {unfilled: carry}}\n", r"params\.yaml:2: env\.costs\.unfilled: carry needs costs\.volume_cap"),
        ("name: x\n", "'windows' is missing"),
        ("windows: {train: [\n", r"params\.yaml:\d+: .*Correct the YAML"),
        ("env: {}\nenv: {}\n", r"params\.yaml:2: found duplicate key"),
        ("- 1\n", "expected settings as `key: value`, got CommentedSeq"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as refused:
        load(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_a_bad_override_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        load_settings(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="--set x: expected key=value"):
        load(tmp_path, WINDOWS, "x")
    with pytest.raises(
        ConfigError,
        match=r"^--set tournament.ensemble_size=64: tournament.ensemble_size 64 exceeds",
    ):
        load(tmp_path, WINDOWS, "tournament.ensemble_size=64")
    with pytest.raises(ConfigError, match="not readable"):
        load_settings(tmp_path)
    with pytest.raises(ConfigError, match=r"^--set pod.steps=\[: .*Correct the YAML"):
        load(tmp_path, WINDOWS, "pod.steps=[")
    with pytest.raises(ConfigError, match=r"^--set pod.stepz=3: 'pod.stepz' is not a setting"):
        load(tmp_path, WINDOWS, "pod.stepz=3")
    with pytest.raises(ConfigError, match=r"^--set pod={steps: x}: pod.steps: input should be"):
        load(tmp_path, WINDOWS, "pod={steps: x}")


def test_overrides_replace_values_and_may_add_sections(tmp_path):
    settings = load(tmp_path, WINDOWS, "pod.steps=5", "tournament.ranges={gain: [1, 2]}", "seed=9")
    assert (settings.pod.steps, settings.seed) == (5, 9)
    assert settings.tournament.ranges == {"gain": (1.0, 2.0)}


def test_the_hash_covers_what_may_change_a_result_and_nothing_else(tmp_path):
    base = load(tmp_path, WINDOWS)
    for same in ("pool.workers=1", "store.folder=elsewhere", "name=other", "seed=5"):
        assert load(tmp_path, WINDOWS, same).config_hash == base.config_hash
    for other in (
        "pod.agents=4",
        "env.costs.commission_bps=5",
        "windows.train=9y",
        "pod.cohorts=8",
    ):
        assert load(tmp_path, WINDOWS, other).config_hash != base.config_hash
    for other in ("seed=5", "name=other"):
        assert load(tmp_path, WINDOWS, other).run_key("prices") != base.run_key("prices")
    assert base.run_key("prices") != base.run_key("other prices")


def test_the_default_file_states_defaults_and_every_setting_is_described():
    settings = load_settings(PARAMS)
    stated, default = settings.model_dump(), PodracerSettings(windows=settings.windows).model_dump()
    # The discount of the default run is not the field's usual 0.99.
    differing = {k for k in stated if stated[k] != default[k]}
    assert differing <= {"hyperparameters"}, differing
    rows = explain(settings)
    assert all(meaning for _, _, meaning in rows)
    assert len({key for key, _, _ in rows}) == len(rows) > 50
    schema = json.dumps(PodracerSettings.model_json_schema())
    assert "no_trade_band" in schema
    assert settings.pool.num_workers(1) == 1


def test_settings_survive_a_round_trip_through_json():
    settings = load_settings(Path("params.yaml"))
    again = PodracerSettings.model_validate_json(settings.model_dump_json())
    assert again == settings
