"""The trading rule, readable: the reference that every backend must equal.

Written in what NumPy and torch have in common, so that the same lines run on either (`xp` is the
module); `kernel.py` is their compiled twin.

Money is counted in whole units of 1e-6 dollars held in float64, positions in *lots*: whole shares,
or millionths of one. Sums of whole numbers below 2^53 do not depend on their order, and the floor of
a quotient of whole numbers below 2^52 is exact, so cash can be spent to the last unit and never
overspent. With whole shares and proportional costs every number here is whole; with fractional
shares and other costs each amount is rounded against the trader, once an order.

Shapes: A assets, E environments. Everything is float64 but for the masks.
"""

from types import ModuleType
from typing import Any, NamedTuple

Array = Any  # numpy.ndarray or torch.Tensor


class Row(NamedTuple):
    """The price tables (see `PriceTables`) at the session of each environment, (A, E) or (A, 1).

    `minimum_E`, `per_lot_E`, `interest_E` are (E,) or (1,); a table that nothing needs is None.
    """

    close: Array
    fill: Array
    buy: Array
    sell: Array
    fillable: Array
    visible: Array
    exit: Array
    cap: Array | None
    impact: Array | None
    per_lot_E: Array | None
    minimum_E: Array | None
    interest_E: Array | None


# The first fields of a Row, which there always are.
ALWAYS = 7


class Fill(NamedTuple):
    """The account after a fill; money in units.

    Attributes:
        pending_AE: lots that the volume did not allow and that stay at work, or None.
        value_before_E: the account at the fill prices, before the orders.
        dropped_E: orders that met a session on which their asset did not trade.
        cut_E: orders that the volume cap cut.
    """

    cash_E: Array
    lots_AE: Array
    pending_AE: Array | None
    value_before_E: Array
    dropped_E: Array
    cut_E: Array


def equity(cash_E: Array, lots_AE: Array, price: Array) -> Array:
    """Return cash plus holdings at the given prices."""
    return cash_E + (lots_AE * price).sum(0)


def size_orders(
    xp: ModuleType,
    cash_E: Array,
    lots_AE: Array,
    row: Row,
    wanted_AE: Array,
    scale_E: Array,
    band_E: Array,
    kind: str,
) -> Array:
    """Size orders at a close; lots, rounded towards zero, negative to sell.

    Args:
        xp: numpy or torch.
        cash_E: money units.
        lots_AE: held.
        row: the tables at the close that the agent has seen.
        wanted_AE: see `Decision`; float32.
        scale_E: see `Decision`.
        band_E: gaps below this fraction of equity are left alone.
        kind: see `Decision`.

    Returns:
        None is ordered of an asset that does not trade at that close.
    """
    if kind == "shares":
        return xp.where(row.visible, xp.trunc(scale_E * wanted_AE), 0.0)
    equity_E = equity(cash_E, lots_AE, row.close)
    gap_AE = wanted_AE * equity_E
    if kind == "weights":
        gap_AE = gap_AE - lots_AE * row.close
    size_AE = xp.trunc(scale_E * gap_AE / xp.where(row.visible, row.close, 1.0))
    return xp.where((abs(gap_AE) >= band_E * equity_E) & row.visible, size_AE, 0.0)


def lets_old_orders_go_on(scale_E: Array, row: Row, kind: str) -> Array:
    """Tell where an order of 0 is no decision, so that an earlier one stays at work.

    A decision about weights is one about every asset that trades, unless it moves nothing at all.
    """
    return ~row.visible | (scale_E == 0.0) if kind == "weights" else True


def charges(xp: ModuleType, lots_AE: Array, row: Row) -> tuple[Array, Array]:
    """Return what orders of so many lots pay beyond proportional costs: commission, and impact."""
    commission_AE = impact_AE = xp.zeros_like(lots_AE)
    is_order = (lots_AE > 0.0) & ~row.exit
    if row.per_lot_E is not None:
        owed_AE = xp.maximum(row.per_lot_E * lots_AE, row.minimum_E + 0.0 * lots_AE)
        commission_AE = xp.where(is_order, xp.ceil(owed_AE), 0.0)
    if row.impact is not None:
        impact_AE = xp.where(is_order, xp.ceil(row.impact * lots_AE * xp.sqrt(lots_AE)), 0.0)
    return commission_AE, impact_AE


def charge(xp: ModuleType, lots_AE: Array, row: Row) -> Array:
    """Return all that orders of so many lots pay beyond proportional costs."""
    commission_AE, impact_AE = charges(xp, lots_AE, row)
    return commission_AE + impact_AE


def buy(
    xp: ModuleType, cash_E: Array, wished_AE: Array, row: Row, is_fractional: bool
) -> tuple[Array, Array]:
    """Return the lots that cash pays for, all wishes scaled alike, and what is paid for them.

    Each is first clipped to what cash alone could pay for. What a buy pays beyond proportional costs is
    reserved at the wanted quantity, an upper bound, and paid at the filled one.
    """
    price = xp.where(row.fillable & ~row.exit, row.buy, 1.0)
    wished_AE = xp.minimum(wished_AE, xp.floor(cash_E / price))
    needed_E = (wished_AE * price).sum(0)
    reserved_AE = charge(xp, wished_AE, row)
    if is_fractional:
        reserved_AE = reserved_AE + (wished_AE > 0.0)  # the rounding of each amount
    room_E = (cash_E - reserved_AE.sum(0)).clip(min=0.0)
    share_E = xp.where(needed_E > room_E, room_E / xp.where(needed_E > 0.0, needed_E, 1.0), 1.0)
    bought_AE = xp.floor(wished_AE * share_E)
    paid_AE = xp.ceil(bought_AE * price) + charge(xp, bought_AE, row)
    return bought_AE, paid_AE


def fill(
    xp: ModuleType,
    cash_E: Array,
    lots_AE: Array,
    pending_AE: Array | None,
    orders_AE: Array,
    goes_on: Array,
    row: Row,
    is_fractional: bool,
) -> Fill:
    """Fill orders: sells first, then buys; each is clipped to what the volume allows.

    A sale never costs more than it brings. No loop over assets, so the result does not depend on their
    order. A holding in `row.exit` is sold whatever was ordered: its asset has had its last price. What
    stays at work (`pending_AE`, where it is not None) is what the volume did not allow, or what met a
    session without trading; it goes on where `goes_on` and no new order replaces it.
    """
    if row.interest_E is not None:
        cash_E = cash_E + xp.floor(cash_E * row.interest_E)
    value_before_E = cash_E + (lots_AE * row.fill).sum(0)
    if pending_AE is not None:
        orders_AE = xp.where((orders_AE == 0.0) & goes_on, pending_AE, orders_AE)
    missed_AE = xp.where(row.fillable, 0.0, orders_AE)
    dropped_E = ((orders_AE != 0.0) & ~row.fillable).sum(0)
    orders_AE = xp.where(row.fillable, orders_AE, 0.0)
    orders_AE = xp.where(row.exit, -lots_AE, orders_AE)

    to_sell_AE = xp.minimum((-orders_AE).clip(min=0.0), lots_AE)
    to_buy_AE = orders_AE.clip(min=0.0)
    sold_AE, wished_AE = to_sell_AE, to_buy_AE
    cut_E = 0 * dropped_E
    pending_AE = None if pending_AE is None else missed_AE
    if row.cap is not None:
        sold_AE, wished_AE = xp.minimum(to_sell_AE, row.cap), xp.minimum(to_buy_AE, row.cap)
        rest_AE = (to_buy_AE - wished_AE) - (to_sell_AE - sold_AE)
        cut_E = (rest_AE != 0.0).sum(0)
        pending_AE = None if pending_AE is None else rest_AE + missed_AE

    proceeds_AE = xp.floor(sold_AE * row.sell)
    proceeds_AE = (proceeds_AE - charge(xp, sold_AE, row)).clip(min=0.0)
    cash_E = cash_E + proceeds_AE.sum(0)

    bought_AE, paid_AE = buy(xp, cash_E, wished_AE, row, is_fractional)
    return Fill(
        cash_E=cash_E - paid_AE.sum(0),
        lots_AE=lots_AE - sold_AE + bought_AE,
        pending_AE=pending_AE,
        value_before_E=value_before_E,
        dropped_E=dropped_E,
        cut_E=cut_E,
    )
