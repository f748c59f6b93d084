"""One account in plain Python and Decimal, written from the description of the rule, order by order.

It shares nothing with podracer but the meaning of the settings, and takes its prices from the test.
"""

from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, Decimal, getcontext

getcontext().prec = 60
BP = Decimal(10_000)


def up(x):
    return x.to_integral_value(ROUND_CEILING)


def down(x):
    return x.to_integral_value(ROUND_FLOOR)


def sized(scale, gap, close):
    """An order, of which the rule takes the quotient as a double; 0.3 of 40 shares are 12."""
    size = Decimal(float(scale) * float(gap) / float(close)).to_integral_value(ROUND_DOWN)
    assert abs(size - scale * gap / close) < 1 + abs(size) * Decimal(10) ** -9
    return size


def scaled(wished, room, need):
    """The part of a buy that is paid for: the rule takes the factor as a double.

    So it may leave a share that exact arithmetic would just afford.
    """
    quantity = down(Decimal(float(wished) * (float(room) / float(need))))
    assert abs(down(wished * room / need) - quantity) <= 1 + quantity * Decimal(10) ** -15
    return quantity


@dataclass
class Bill:
    """What one step took from the account, in millionths of a dollar."""

    commission: Decimal = Decimal(0)
    half_spread: Decimal = Decimal(0)
    slippage: Decimal = Decimal(0)
    impact: Decimal = Decimal(0)


@dataclass
class Quote:
    """One asset on one step; prices in millionths of a dollar, None where it does not trade."""

    close: Decimal | None
    fill: Decimal | None
    mark: Decimal
    volume: Decimal
    ends_at: Decimal | None = None  # the price at which a holding is closed


@dataclass
class ScalarAccount:
    """Cash and lots (shares, or millionths of one); `step` follows the order of events of a session."""

    cash: Decimal
    shares: list
    costs: dict
    daily_rate: Decimal = Decimal(0)
    pending: list = field(default_factory=list)
    lots: int = 1  # in a share; quotes and volumes are a lot's
    dropped: int = 0
    cut: int = 0

    def rate(self, name):
        return Decimal(str(self.costs.get(name, 0))) / BP

    def step(self, quotes, wanted, scale, band, kind):  # noqa: C901
        self.dropped = self.cut = 0
        orders = self._orders(quotes, wanted, scale, band, kind)
        self.cash += down(self.cash * self.daily_rate)
        bill = Bill()
        buys = []
        for a, (quote, order) in enumerate(zip(quotes, orders, strict=True)):
            if quote.ends_at is not None:
                self.cash += self.shares[a] * quote.ends_at
                self.shares[a] = Decimal(0)
                continue
            # A decision about weights that moves at all is one about every asset that trades.
            is_decided = kind == "weights" and scale != 0 and quote.close is not None
            if order == 0 and not is_decided:
                order = self.pending[a]
            self.pending[a] = Decimal(0)
            if order == 0:
                continue
            if quote.fill is None:
                self.dropped += 1
                if self.costs.get("unfilled") == "carry":
                    self.pending[a] = order
                continue
            if order < 0:
                order = -min(-order, self.shares[a])
            if "volume_cap" in self.costs:
                most = down(quote.volume * Decimal(str(self.costs["volume_cap"])))
                if abs(order) > most:
                    self.cut += 1
                    rest = (abs(order) - most) * (1 if order > 0 else -1)
                    if self.costs.get("unfilled") == "carry":
                        self.pending[a] = rest
                    order = most if order > 0 else -most
            if order < 0:
                self._sell(a, -order, quote, bill)
            elif order > 0:
                buys.append((a, order, quote))
        self._buy_all(buys, bill)
        return bill

    def worth(self, quotes):
        return self.cash + sum(s * q.mark for s, q in zip(self.shares, quotes, strict=True))

    def _orders(self, quotes, wanted, scale, band, kind):
        """Orders at the close: whole shares, rounded towards zero."""
        worth = self.worth(quotes)
        orders = []
        for share, quote, want in zip(self.shares, quotes, wanted, strict=True):
            if quote.close is None:
                orders.append(Decimal(0))
            elif kind == "shares":
                orders.append((want * scale).to_integral_value(ROUND_DOWN))
            else:
                gap = want * worth - (share * quote.close if kind == "weights" else 0)
                size = sized(scale, gap, quote.close)
                orders.append(size if abs(gap) >= band * worth else Decimal(0))
        return orders

    def _parts(self, quote):
        """What a lot pays: commission, half-spread, slippage, each rounded up for whole shares."""
        names = ("commission_bps", "half_spread_bps", "slippage_bps")
        exact = [quote.fill * self.rate(name) for name in names]
        return [up(x) for x in exact] if self.lots == 1 else exact

    def _extra(self, quantity, quote):
        """What an order pays on top: commission by the share, and impact."""
        if quantity == 0:
            return Decimal(0), Decimal(0)
        dollar = Decimal(1_000_000)
        per_share = Decimal(str(self.costs.get("commission_per_share", 0))) * dollar
        least = Decimal(str(self.costs.get("commission_minimum", 0))) * dollar
        impact = Decimal(0)
        if self.costs.get("impact_bps"):
            part = (quantity / quote.volume).sqrt()
            impact = up(self.rate("impact_bps") * part * quantity * quote.fill)
        return up(max(per_share / self.lots * quantity, least)), impact

    def _note(self, bill, quantity, quote, commission, impact):
        parts = self._parts(quote)
        bill.commission += quantity * parts[0] + commission
        bill.half_spread += quantity * parts[1]
        bill.slippage += quantity * parts[2]
        bill.impact += impact

    def _sell(self, a, quantity, quote, bill):
        if quantity == 0:
            return
        proceeds = down(quantity * (quote.fill - sum(self._parts(quote))))
        commission, impact = self._extra(quantity, quote)
        commission = min(commission, proceeds)
        impact = min(impact, proceeds - commission)
        self.cash += proceeds - commission - impact
        self.shares[a] -= quantity
        self._note(bill, quantity, quote, commission, impact)

    def _buy_all(self, buys, bill):
        cash = self.cash
        wished = [min(q, down(cash / (o.fill + sum(self._parts(o))))) for _, q, o in buys]
        prices = [o.fill + sum(self._parts(o)) for _, _, o in buys]
        reserve = sum(
            (sum(self._extra(w, o)) for w, (_, _, o) in zip(wished, buys, strict=True)), Decimal(0)
        )
        if self.lots > 1:
            reserve += sum(w > 0 for w in wished)  # each amount is rounded up
        need = sum((w * p for w, p in zip(wished, prices, strict=True)), Decimal(0))
        room = max(cash - reserve, Decimal(0))
        for w, p, (a, _, quote) in zip(wished, prices, buys, strict=True):
            quantity = scaled(w, room, need) if need > room else w
            if quantity == 0:
                continue
            commission, impact = self._extra(quantity, quote)
            self.cash -= up(quantity * p) + commission + impact
            self.shares[a] += quantity
            self._note(bill, quantity, quote, commission, impact)
