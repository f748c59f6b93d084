"""What a CUDA device makes of the trading rule and of a PPO update: equality with the CPU, then speed.

`make gpu-check`. Without a CUDA device it says so and checks nothing; `--device cpu` walks through the
same calls on the CPU (no graphs). The whole rollout on the device is not built: pods run on the CPU.

For N accounts: environment steps a second, plain and as a CUDA graph, and the share of the device's
copying speed that the 490 bytes of a step come to. For P agents: updates of a minibatch of 2,048 samples
each, plain and as a CUDA graph.
"""

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.trading_peer import SETTINGS, indicators_market, network, pod
from podracer.agents import ppo
from podracer.agents.actor_critic import MAX_GRADIENT_NORM, write_gradients
from podracer.agents.algorithms import distribution
from podracer.agents.batch import Minibatch
from podracer.agents.distributions import Taken
from podracer.agents.networks import Inputs
from podracer.agents.population import Population
from podracer.envs.tables import price_tables
from podracer.envs.torch_backend import TorchAccounts, advance, torch_tables
from podracer.market.market import Market
from podracer.pods.settings import PodSettings

BYTES_A_STEP, SESSIONS, TOLERANCE = 490, 20, 1e-4


def rate(call: Callable[[], object], units: int, device: str) -> float:
    """Return units a second of a call."""
    for _ in range(3):
        call()
    number = 0
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    while time.perf_counter() - started < 0.5:
        call()
        number += 1
        if device == "cuda" and number % 16 == 0:
            torch.cuda.synchronize()
    if device == "cuda":
        torch.cuda.synchronize()
    return units * number / (time.perf_counter() - started)


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """Return the call as a CUDA graph; it must read and write the same tensors every time."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def walk(market: Market, num_envs: int, device: str) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Some sessions of N accounts from the same start, with the same orders."""
    tables = torch_tables(price_tables(market, SETTINGS), device)
    drawn = np.random.default_rng(0).uniform(-1, 1, (market.num_assets, num_envs))
    wanted_AE = torch.as_tensor(drawn.astype(np.float32), device=device)
    scale_E = torch.full((num_envs,), 0.1, dtype=torch.float64, device=device)
    nothing_E = torch.zeros(num_envs, dtype=torch.float64, device=device)
    cash_E = torch.full((num_envs,), 1e12, dtype=torch.float64, device=device)
    lots_AE = torch.zeros(drawn.shape, dtype=torch.float64, device=device)
    rows = [torch.tensor([t], device=device) for t in range(SESSIONS)]

    def go() -> tuple[torch.Tensor, ...]:
        accounts = TorchAccounts(cash_E, lots_AE, None)
        for row_B in rows:
            fill = advance(tables, row_B, wanted_AE, scale_E, nothing_E, "notional", accounts)
            accounts = TorchAccounts(fill.cash_E, fill.lots_AE, None)
        return accounts.cash_E, accounts.lots_AE

    return go


def update(market: Market, num_agents: int, device: str) -> tuple[Callable[[], None], Population]:
    """One PPO update of P agents on 16 accounts of 128 sessions."""
    settings = PodSettings(
        cohorts=1, envs_per_cohort=16, horizon_bars=128, network=network(64), ppo={"minibatches": 1}
    )
    trainer = pod(market, num_agents, settings)
    with torch.no_grad():
        lived = trainer._rollouts.collect(trainer._explorers)
        whole = trainer._learner._batch(lived).minibatch(torch.tensor([0]))
        seen = trainer._rollouts.inputs(whole.session_CT, whole.account_PLES)
    here = trainer.population
    there = Population(
        here.weights.flat_PW.to(device),
        here.weights.layout,
        {name: value.to(device) for name, value in here.hyper.items()},
        {"policy": ("",)},
    )
    batch = Minibatch(
        whole.session_CT,
        Taken(*(part.to(device) for part in whole.taken)),
        whole.account_PLES.to(device),
        whole.advantage_PLE.to(device),
        whole.return_PLE.to(device),
    )
    inputs = Inputs(*(None if part is None else part.to(device) for part in seen))
    chances = distribution(trainer._rollouts.sizes)

    def go() -> None:
        with torch.no_grad():
            write_gradients(there, chances, ppo.OBJECTIVE, inputs, batch)
            there.step("policy", there.hyper["learning_rate"], MAX_GRADIENT_NORM)

    return go, there


def check(market: Market, device: str) -> None:
    """Compare the device with the CPU; ends the program where they differ."""
    ours, reference = walk(market, 1_024, device)(), walk(market, 1_024, "cpu")()
    if not all(torch.equal(a.cpu(), b) for a, b in zip(ours, reference, strict=True)):
        sys.exit(f"the trading rule differs between {device} and the CPU")
    print(f"trading rule, 1,024 accounts, {SESSIONS} sessions: equal to the unit")
    populations = []
    for where in (device, "cpu"):
        go, learnt = update(market, 8, where)
        for _ in range(3):
            go()
        populations.append(learnt.weights.flat_PW.cpu())
    difference = float((populations[0] - populations[1]).abs().max())
    print(f"PPO, 8 agents, 3 updates: weights differ by {difference:.1e} at most")
    if not difference <= TOLERANCE:
        sys.exit(f"expected at most {TOLERANCE:g}")


def main() -> None:
    """Check, then time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="one size each")
    options = parser.parse_args()
    device = options.device
    if device == "cuda" and not torch.cuda.is_available():
        print("this machine has no CUDA device: nothing was checked")
        return
    market = indicators_market()
    check(market, device)
    copied = torch.empty(2**26, device=device)
    bandwidth = rate(lambda: copied.add_(1.0), 2 * copied.nbytes, device)
    print(f"bandwidth of a pass over memory: {bandwidth / 1e9:,.0f} GB/s")
    for power in (10,) if options.quick else (10, 12, 14, 16, 18):
        step = walk(market, 2**power, device)
        plain = rate(step, 2**power * SESSIONS, device)
        graph = rate(captured(step), 2**power * SESSIONS, device) if device == "cuda" else None
        share = (graph or plain) * BYTES_A_STEP / bandwidth
        print(
            f"N = 2^{power}: {plain:,.0f} env steps/s plain, "
            f"{'–' if graph is None else f'{graph:,.0f}'} as a graph, {share:.0%} of the bandwidth"
        )
    for agents in (2,) if options.quick else (1, 4, 16, 64, 256):
        go, _ = update(market, agents, device)
        plain = rate(go, agents * 2_048, device)
        graph = rate(captured(go), agents * 2_048, device) if device == "cuda" else None
        print(
            f"P = {agents}: {plain:,.0f} samples/s of an update plain, "
            f"{'–' if graph is None else f'{graph:,.0f}'} as a graph"
        )


if __name__ == "__main__":
    main()
