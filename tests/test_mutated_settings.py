"""Two hundred machine-made mistakes in a settings file: every one is refused, with its line."""

import random
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from podracer.config import load_settings
from podracer.errors import ConfigError

VALID = """
name: mine
seed: 3
data:
  source: bundled
  dataset: us20
features:
  fill_bars: 5
windows:
  train: 2005-01-01 .. 2012-12-31
  selection: 2013-01-01 .. 2017-12-31
  lockbox: 2018-01-01 .. 2022-12-28
  embargo_sessions: 60
env:
  initial_cash: 500000
  fill: next_close
  shares: whole
  costs:
    commission_bps: 5
    half_spread_bps: 2
    slippage_bps: 1
    impact_bps: 30
    volume_cap: 0.1
    unfilled: carry
  delisting_haircut: 0.3
  action:
    mode: weights
    no_trade_band: 0.05
    cash_action: true
  observability: partial
  observations:
    asset_features: {}
    holdings: {}
  rewards:
    mean_variance:
      weight: 1
      risk_aversion: 10
    differential_sharpe:
      adaptation: 0.02
    turnover_penalty:
      weight: 0.1
  terminations:
    ruin:
      fraction: 0.05
    drawdown_limit:
      fraction: 0.4
  episode:
    start: uniform
    sessions: 200
    cost_scales: [0.5, 1, 2]
pod:
  agents: 8
  steps: 1000
hyperparameters:
  discount: 0.9
tournament:
  generations: 2
"""
NUMBERS = [
    "seed",
    "fill_bars",
    "embargo_sessions",
    "initial_cash",
    "commission_bps",
    "volume_cap",
    "cash_rate",
    "fraction",
    "adaptation",
    "risk_aversion",
    "agents",
    "steps",
    "discount",
    "generations",
]
WORDS = ["source", "unfilled", "fill", "shares", "mode", "start", "observability"]


def places(tree, path=()):
    """Every (path, value) of a tree."""
    for key, value in tree.items():
        yield (*path, key), value
        if isinstance(value, dict):
            yield from places(value, (*path, key))


def typo(rng, key):
    """A key with two letters swapped, one left out, or one doubled."""
    i = rng.randrange(len(key) - 1)
    return rng.choice([
        key[:i] + key[i + 1] + key[i] + key[i + 2 :], key[:i] + key[i + 1 :], key[: i + 1] + key[i:]
    ])  # fmt: skip


def parent(tree, path):
    for key in path[:-1]:
        tree = tree[key]
    return tree


def mistakes():
    """(kind, text of the file, what marks the line, what the message must say)."""
    rng = random.Random(5)
    yaml = YAML(typ="safe")
    spots = list(places(yaml.load(VALID)))
    made = set()
    while len(made) < 200:
        path, value = rng.choice(spots)
        kind = rng.choice(["typo", "alien key", "wrong type", "out of range", "no such word"])
        old = re.escape(str(path[-1]))
        if kind == "typo":
            mark = typo(rng, path[-1])
            if mark in dict(parent(yaml.load(VALID), path)) or mark == path[-1] or len(mark) < 4:
                continue
            said = f"Did you mean {'.'.join(path)!r}?"
            line = re.compile(rf"^(\s*){old}:(.*)$", re.M), rf"\g<1>{mark}:\g<2>"
        elif kind == "alien key":
            mark, said = f"zzqx{rng.randrange(10)}", "is not a setting"
            line = (
                re.compile(rf"^(\s*){old}:(.*)$", re.M),
                rf"\g<1>{mark}: 3\n\g<1>{path[-1]}:\g<2>",
            )
        elif (
            kind == "wrong type" and not isinstance(value, str | dict) and path[-1] != "cost_scales"
        ):
            mark, said = "[ban, ana]", path[-1]
            line = re.compile(rf"^(\s*){old}: .*$", re.M), rf"\g<1>{path[-1]}: [ban, ana]"
        elif kind == "out of range" and path[-1] in NUMBERS:
            mark, said = "-987", path[-1]
            line = re.compile(rf"^(\s*){old}: .*$", re.M), rf"\g<1>{path[-1]}: -987"
        elif kind == "no such word" and path[-1] in WORDS:
            mark, said = f"wrod{rng.randrange(10)}", path[-1]
            line = re.compile(rf"^(\s*){old}: .*$", re.M), rf"\g<1>{path[-1]}: {mark}"
        else:
            continue
        at = nth_line(path)
        lines = VALID.splitlines()
        lines[at] = line[0].sub(line[1], lines[at])
        text = "\n".join(lines)
        if (kind, text) not in made:
            made.add((kind, text))
            yield kind, text, mark, said


def nth_line(path):
    """The line of a key, found by walking down the indentation."""
    lines = VALID.splitlines()
    at = -1
    for depth, key in enumerate(path):
        at = next(
            i for i in range(at + 1, len(lines)) if re.match(rf"^{'  ' * depth}{key}:", lines[i])
        )
    return at


def test_the_file_itself_is_valid(tmp_path):
    (tmp_path / "params.yaml").write_text(VALID)
    assert load_settings(tmp_path / "params.yaml").name == "mine"


def test_two_hundred_mistakes_are_refused_before_anything_runs(tmp_path):
    cases = list(mistakes())
    assert len(cases) == 200
    assert len({kind for kind, *_ in cases}) == 5
    path = Path(tmp_path / "params.yaml")
    for kind, text, mark, said in cases:
        path.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(said)) as refused:
            load_settings(path)
        message = str(refused.value)
        number = next(
            i
            for i, line in enumerate(text.splitlines(), 1)
            if re.search(rf"(^|\s){re.escape(mark)}", line)
        )
        assert message.startswith(f"{path}:{number}: "), (kind, mark, message)
        assert "\n" not in message
        if kind in ("typo", "alien key"):
            assert "Did you mean" in message or "Known here" in message
