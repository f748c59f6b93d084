"""The trading rule of `rule.py` compiled by numba: one pass over memory, SIMD over environments.

No fast-math: every operation is the reference's, in IEEE arithmetic, so the two agree bit for bit.
Shapes: D sessions, A assets, E environments in B blocks of equal size; a block shares its session.
"""

import numba
import numpy as np

TILE = 256


@numba.njit(cache=True, error_model="numpy")
def step(  # type: ignore[no-untyped-def]  # noqa: C901
    session_B,
    target_AE,
    speed_E,
    band_E,
    cash_E,
    shares_AE,
    close_DA,
    fill_DA,
    buy_DA,
    sell_DA,
    fillable_DA,
    visible_DA,
    exit_DA,
    value_before_E,
    traded_E,
    cost_E,
    dropped_E,
):
    """Size orders at each block's close and fill them; updates cash, shares and the last four."""
    num_assets, num_envs = shares_AE.shape
    block = num_envs // len(session_B)
    wanted = np.empty((num_assets, TILE))
    total = np.empty(TILE)
    need = np.empty(TILE)
    for b in range(len(session_B)):
        t = session_B[b]
        for first in range(b * block, (b + 1) * block, TILE):
            n = min(TILE, (b + 1) * block - first)
            cash = cash_E[first : first + n]
            speed = speed_E[first : first + n]
            band = band_E[first : first + n]
            value_before = value_before_E[first : first + n]
            traded = traded_E[first : first + n]
            cost = cost_E[first : first + n]
            dropped = dropped_E[first : first + n]
            for i in range(n):
                total[i] = cash[i]
                value_before[i] = cash[i]
                need[i] = 0.0
                traded[i] = 0.0
                cost[i] = 0.0
                dropped[i] = 0
            for a in range(num_assets):
                close = close_DA[t, a]
                fill = fill_DA[t, a]
                shares = shares_AE[a, first : first + n]
                for i in range(n):
                    total[i] += shares[i] * close
                    value_before[i] += shares[i] * fill
            for a in range(num_assets):
                close = close_DA[t, a]
                row = wanted[a]
                shares = shares_AE[a, first : first + n]
                target = target_AE[a, first : first + n]
                if visible_DA[t, a]:
                    for i in range(n):
                        gap = np.float64(target[i]) * total[i] - shares[i] * close
                        order = np.trunc(speed[i] * gap / close)
                        row[i] = order if abs(gap) >= band[i] * total[i] else 0.0
                else:
                    for i in range(n):
                        row[i] = 0.0
                if exit_DA[t, a]:
                    for i in range(n):
                        row[i] = -np.float64(shares[i])
                elif not fillable_DA[t, a]:
                    for i in range(n):
                        dropped[i] += 1 if row[i] != 0.0 else 0
                        row[i] = 0.0
                sell = sell_DA[t, a]
                fill = fill_DA[t, a]
                for i in range(n):
                    sold = min(max(-row[i], 0.0), np.float64(shares[i]))
                    shares[i] = np.int32(shares[i] - np.int32(sold))
                    cash[i] += sold * sell
                    traded[i] += sold * fill
                    cost[i] += sold * (fill - sell)
            for a in range(num_assets):
                if fillable_DA[t, a] and not exit_DA[t, a]:
                    buy = buy_DA[t, a]
                    row = wanted[a]
                    for i in range(n):
                        row[i] = min(max(row[i], 0.0), np.floor(cash[i] / buy))
                        need[i] += row[i] * buy
            for i in range(n):
                total[i] = cash[i] / need[i] if need[i] > cash[i] else 1.0
            for a in range(num_assets):
                if fillable_DA[t, a] and not exit_DA[t, a]:
                    buy = buy_DA[t, a]
                    fill = fill_DA[t, a]
                    row = wanted[a]
                    shares = shares_AE[a, first : first + n]
                    for i in range(n):
                        bought = np.floor(row[i] * total[i])
                        shares[i] = np.int32(shares[i] + np.int32(bought))
                        cash[i] -= bought * buy
                        traded[i] += bought * fill
                        cost[i] += bought * (buy - fill)


@numba.njit(cache=True, error_model="numpy")
def equity(session_B, cash_E, shares_AE, close_DA):  # type: ignore[no-untyped-def]
    """Return cash plus holdings (E,) at the close of each block's session."""
    num_assets, num_envs = shares_AE.shape
    block = num_envs // len(session_B)
    total_E = cash_E.copy()
    for b in range(len(session_B)):
        total = total_E[b * block : (b + 1) * block]
        for a in range(num_assets):
            close = close_DA[session_B[b], a]
            shares = shares_AE[a, b * block : (b + 1) * block]
            for i in range(block):
                total[i] += shares[i] * close
    return total_E
