"""The trading rule of `rule.py` compiled by numba: one pass over memory, SIMD over environments.

No fast-math: every operation is the reference's, in IEEE arithmetic, so the two agree bit for bit.
Environments are worked through in tiles that fit the cache.

Shapes: D sessions, A assets, E environments in B blocks of equal size; a block shares its row of the
tables. `tables` are close, fill, buy, sell, fillable, visible and exit of `PriceTables`; `envs` are the
first environment of a tile and the one after its last.
"""

import numba
import numpy as np

TILE = 128
WEIGHTS, NOTIONAL, SHARES = range(3)
compiled = numba.njit(cache=True, error_model="numpy")
# Of what only the kernel itself calls, nothing for Python's use is compiled.
inner = numba.njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@inner
def _size(kind, row, tables, envs, cash_E, lots_AE, wanted_AE, scale_E, band_E, order):  # type: ignore[no-untyped-def]
    """Write the orders of a tile (A, n), in lots."""
    first, last = envs
    n = last - first
    total = _equity(tables[0], row, envs, cash_E, lots_AE)
    scale, band = scale_E[first:last], band_E[first:last]
    for a in range(len(lots_AE)):
        close = tables[0][row, a]
        held, want, size = lots_AE[a, first:last], wanted_AE[a, first:last], order[a]
        if not tables[5][row, a]:
            for i in range(n):
                size[i] = 0.0
        elif kind == WEIGHTS:
            for i in range(n):
                gap = np.float64(want[i]) * total[i] - held[i] * close
                whole = np.trunc(scale[i] * gap / close)
                size[i] = whole if abs(gap) >= band[i] * total[i] else 0.0
        elif kind == NOTIONAL:
            for i in range(n):
                gap = np.float64(want[i]) * total[i]
                whole = np.trunc(scale[i] * gap / close)
                size[i] = whole if abs(gap) >= band[i] * total[i] else 0.0
        else:
            for i in range(n):
                size[i] = np.trunc(scale[i] * np.float64(want[i]))


@inner
def _equity(price_DA, row, envs, cash_E, lots_AE):  # type: ignore[no-untyped-def]
    """Return cash plus holdings of a tile at the prices of a row."""
    first, last = envs
    total = cash_E[first:last].copy()
    for a in range(len(lots_AE)):
        price = price_DA[row, a]
        held = lots_AE[a, first:last]
        for i in range(last - first):
            total[i] += held[i] * price
    return total


@inner
def _clip(row, tables, envs, lots_AE, order, dropped_E):  # type: ignore[no-untyped-def]
    """Clip a tile's orders to what can be filled and to what is held; close what has ended."""
    first, last = envs
    dropped = dropped_E[first:last]
    for a in range(len(lots_AE)):
        held, size = lots_AE[a, first:last], order[a]
        if tables[6][row, a]:
            for i in range(last - first):
                size[i] = -np.float64(held[i])
        elif not tables[4][row, a]:
            for i in range(last - first):
                dropped[i] += 1 if size[i] != 0.0 else 0
                size[i] = 0.0
        else:
            for i in range(last - first):
                size[i] = max(size[i], -np.float64(held[i]))


@inner
def _go_on(kind, row, tables, envs, pending_AE, scale_E, order, new_pending_AE):  # type: ignore[no-untyped-def]
    """Let earlier orders go on where there is no new one; keep what meets a session without trading."""
    first, last = envs
    scale = scale_E[first:last]
    for a in range(len(order)):
        pending, size, rest = pending_AE[a, first:last], order[a], new_pending_AE[a, first:last]
        is_decided = kind == WEIGHTS and tables[5][row, a]
        for i in range(last - first):
            goes_on = size[i] == 0.0 and not (is_decided and scale[i] != 0.0)
            size[i] = pending[i] if goes_on else size[i]
            rest[i] = 0.0 if tables[4][row, a] else size[i]


@inner
def _cap(row, cap_DA, envs, order, new_pending_AE, cut_E):  # type: ignore[no-untyped-def]
    """Clip a tile's orders to the volume; note what is left of them."""
    first, last = envs
    cut = cut_E[first:last]
    for a in range(len(order)):
        size, cap = order[a], cap_DA[row, a]
        if new_pending_AE is not None:
            rest = new_pending_AE[a, first:last]
            for i in range(last - first):
                rest[i] += size[i] - min(max(size[i], -cap), cap)
        for i in range(last - first):
            allowed = min(max(size[i], -cap), cap)
            cut[i] += 1 if allowed != size[i] else 0
            size[i] = allowed


@inner
def _charge(lots, per_lot, minimum, impact):  # type: ignore[no-untyped-def]
    """What an order pays beyond proportional costs."""
    owed = np.ceil(max(per_lot * lots, minimum)) + np.ceil(impact * lots * np.sqrt(lots))
    return owed if lots > 0.0 else 0.0


@inner
def _sell(row, tables, extras, envs, cash_E, order):  # type: ignore[no-untyped-def]
    """Add the proceeds of a tile's sales to its cash."""
    first, last = envs
    cash = cash_E[first:last]
    for a in range(len(order)):
        sell = tables[3][row, a]
        size = order[a]
        if extras is None:
            for i in range(last - first):
                cash[i] += np.floor(max(-size[i], 0.0) * sell)
        else:
            # Where an asset ends it costs nothing to close.
            part = 0.0 if tables[6][row, a] else 1.0
            per_lot, minimum, impact = _rates(extras, row, a)
            for i in range(last - first):
                sold = max(-size[i], 0.0)
                charge = part * _charge(sold, per_lot, minimum, impact)
                cash[i] += max(np.floor(sold * sell) - charge, 0.0)


@inner
def _rates(extras, row, a):  # type: ignore[no-untyped-def]
    """Return commission a lot, its minimum and impact of an asset."""
    _, impact_DA, per_lot_D, minimum_D, _ = extras
    return per_lot_D[row], minimum_D[row], impact_DA[row, a]


@inner
def _affordable(row, tables, extras, fractional, envs, cash_E, order):  # type: ignore[no-untyped-def]
    """Clip each buy to what cash alone would pay for; return the share of all that is paid for."""
    first, last = envs
    n = last - first
    cash = cash_E[first:last]
    need, share = np.zeros(n), np.zeros(n)  # share holds the reserve until it is known
    for a in range(len(order)):
        if tables[6][row, a] or not tables[4][row, a]:
            continue  # nothing is bought
        buy = tables[2][row, a]
        size = order[a]
        for i in range(n):
            wished = min(size[i], np.floor(cash[i] / buy))
            need[i] += max(wished, 0.0) * buy
            size[i] = wished
        if extras is not None:
            per_lot, minimum, impact = _rates(extras, row, a)
            for i in range(n):
                share[i] += _charge(max(size[i], 0.0), per_lot, minimum, impact)
        if fractional is not None:
            for i in range(n):
                share[i] += 1.0 if size[i] > 0.0 else 0.0
    for i in range(n):
        room = max(cash[i] - share[i], 0.0)
        share[i] = room / need[i] if need[i] > room else 1.0
    return share


@inner
def _buy(row, tables, extras, fractional, envs, cash_E, lots_AE, order, new_lots_AE):  # type: ignore[no-untyped-def]
    """Pay for a tile's buys and write its new positions."""
    first, last = envs
    cash = cash_E[first:last]
    share = _affordable(row, tables, extras, fractional, envs, cash_E, order)
    for a in range(len(order)):
        buy = tables[2][row, a]
        size, held, new = order[a], lots_AE[a, first:last], new_lots_AE[a, first:last]
        if extras is not None:
            per_lot, minimum, impact = _rates(extras, row, a)
            for i in range(last - first):
                bought = np.floor(max(size[i], 0.0) * share[i])
                cash[i] -= _charge(bought, per_lot, minimum, impact)
        for i in range(last - first):
            bought = np.floor(max(size[i], 0.0) * share[i])
            cash[i] -= np.ceil(bought * buy)
            new[i] = held[i] + (bought + min(size[i], 0.0))


@compiled
def step(  # type: ignore[no-untyped-def]
    kind,
    row_B,
    tables,
    extras,
    fractional,
    decision,
    cash_E,
    lots_AE,
    pending_AE,
    new_cash_E,
    new_lots_AE,
    new_pending_AE,
    value_before_E,
    counts_2E,
):
    """Size orders at each block's close and fill them; writes the last five.

    What is None costs neither time nor compilation; a combination is compiled when it is first met.

    Args:
        kind: of the decision.
        row_B: int64.
        tables: close, fill, buy, sell, fillable, visible, exit.
        extras: cap, impact, per_lot, minimum, interest; or None if there are none of them.
        fractional: None for whole shares.
        decision: wanted, scale, band.
        cash_E: before.
        lots_AE: before.
        pending_AE: before, or None.
        new_cash_E: after.
        new_lots_AE: after.
        new_pending_AE: after, or None.
        value_before_E: see `rule.Fill`.
        counts_2E: dropped and cut orders, zeros.
    """
    num_assets, num_envs = lots_AE.shape
    block = num_envs // len(row_B)
    order = np.empty((num_assets, TILE))
    for b in range(len(row_B)):
        row = row_B[b]
        for first in range(b * block, (b + 1) * block, TILE):
            envs = first, min(first + TILE, (b + 1) * block)
            _size(kind, row, tables, envs, cash_E, lots_AE, *decision, order)
            new_cash_E[envs[0] : envs[1]] = cash_E[envs[0] : envs[1]]
            if extras is not None:
                for i in range(envs[0], envs[1]):
                    new_cash_E[i] += np.floor(new_cash_E[i] * extras[4][row])
            value_before_E[envs[0] : envs[1]] = _equity(tables[1], row, envs, new_cash_E, lots_AE)
            if pending_AE is not None:
                _go_on(kind, row, tables, envs, pending_AE, decision[1], order, new_pending_AE)
            _clip(row, tables, envs, lots_AE, order, counts_2E[0])
            if extras is not None:
                _cap(row, extras[0], envs, order, new_pending_AE, counts_2E[1])
            _sell(row, tables, extras, envs, new_cash_E, order)
            _buy(row, tables, extras, fractional, envs, new_cash_E, lots_AE, order, new_lots_AE)


@compiled
def equity(row_B, cash_E, lots_AE, close_DA):  # type: ignore[no-untyped-def]
    """Return cash plus holdings (E,) at the close of each block's row."""
    num_assets, num_envs = lots_AE.shape
    block = num_envs // len(row_B)
    total_E = cash_E.copy()
    for b in range(len(row_B)):
        total = total_E[b * block : (b + 1) * block]
        for a in range(num_assets):
            close = close_DA[row_B[b], a]
            lots = lots_AE[a, b * block : (b + 1) * block]
            for i in range(block):
                total[i] += lots[i] * close
    return total_E
