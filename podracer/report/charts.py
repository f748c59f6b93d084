"""The report's pictures as inline SVG, drawn twice: for a wide page and for a phone.

Shapes: R daily returns, A assets.
"""

import io
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from podracer.backtest.backtest import CHAMPION, ENTRY_SESSIONS, INDEX, LEADER, BacktestResult
from podracer.backtest.baselines import BENCHMARK
from podracer.evaluation.metrics import drawdown, wealth
from podracer.tournament.orchestrator import GenerationSummary

# Okabe and Ito's palette: told apart by colour-blind readers.
COLOURS = {
    CHAMPION: "#0072b2",
    LEADER: "#56b4e9",
    BENCHMARK: "#d55e00",
    "equal weight, buy and hold": "#e69f00",
    INDEX: "#7f7f7f",
}
WIDE, NARROW = 11.0, 4.4
STYLE = {
    "svg.hashsalt": "podracer",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "legend.frameon": False,
}


class Chart(NamedTuple):
    """One picture in two sizes, and its description for those who cannot see it."""

    title: str
    caption: str
    wide_svg: str
    narrow_svg: str


def _chart(title: str, caption: str, draw: Callable[[float], Figure]) -> Chart:
    with mpl.rc_context(STYLE):
        return Chart(title, caption, *(_svg(draw(width), title) for width in (WIDE, NARROW)))


def _svg(figure: Figure, title: str) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    width = figure.get_figwidth()
    # Ids must differ between the charts of one page.
    prefix = f"{re.sub('[^a-z]', '', title.lower())}{'w' if width == WIDE else 'n'}"
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def equity_and_drawdown(result: BacktestResult) -> Chart:
    """Net equity of everything that can be compared, with the window boundaries."""
    names = [n for n in COLOURS if n in result.names]
    dates = result.whole_dates.astype("datetime64[D]")

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 5.6 if width == WIDE else 5.2), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        for name in reversed(names):
            returns_R = result.whole_returns[:, result.names.index(name)]
            bold = 1.8 if name == CHAMPION else 1.0
            # The champion hugs its benchmark: dashed and on top, both can be seen.
            dash, layer = ("--", 3.0) if name == BENCHMARK else ("-", 2.0)
            growth_R = wealth(returns_R)[1:]
            top.plot(dates, growth_R, dash, color=COLOURS[name], lw=bold, label=name, zorder=layer)
            if name in (CHAMPION, BENCHMARK):
                bottom.plot(dates, drawdown(returns_R)[1:] * 100, color=COLOURS[name], lw=bold)
        top.set_yscale("log")
        top.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        top.yaxis.set_minor_formatter(lambda value, _: "")
        ticks = [t for t in (0.25, 0.5, 1, 2, 4, 8, 16, 32) if _within(t, top.get_ylim())]
        top.set_yticks(ticks)
        top.set_ylabel("equity, log scale")
        bottom.set_ylabel("drawdown, %")
        for window in result.windows:
            edge = result.spans[window.name][0]
            for axes in (top, bottom):
                axes.axvline(edge, color="#444444", lw=0.8, ls="--")
            top.annotate(
                window.name,
                (edge, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(4, -10),
                textcoords="offset points",
                color="#444444",
            )
        handles, labels = top.get_legend_handles_labels()
        columns = 5 if width == WIDE else 2
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=columns)
        return figure

    caption = (
        "Net of costs, from 1. The champion learned on the training window and was chosen on the "
        "selection window: only what lies right of the lockbox line is out of sample, and only that "
        "is in the table below, where every series starts anew from cash."
    )
    return _chart("Equity and drawdown", caption, draw)


def _within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


def lead(result: BacktestResult) -> Chart:
    """Champion over benchmark in the lockbox."""
    ratio_R = wealth(result.returns_of(CHAMPION)) / wealth(result.returns_of(BENCHMARK)) - 1.0

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 2.6), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0.0, color="#444444", lw=0.8)
        axes.plot(result.dates_R, ratio_R[1:] * 100, color=COLOURS[CHAMPION])
        axes.set_ylabel("lead, %")
        _few_dates(axes, width, result.dates_R)
        return figure

    settled = result.settled_difference
    shown = "an undefined amount" if settled is None else f"{settled:.3f}"
    caption = (
        f"Champion's wealth relative to {BENCHMARK}, lockbox only. A flat line is no skill. Equal "
        f"weight is invested at the first fill, the champion moves in at its own speed, so the first "
        f"{ENTRY_SESSIONS} sessions show the market's luck at entry: without them the Sharpe ratios "
        f"differ by {shown}."
    )
    return _chart("Lead over equal weight", caption, draw)


def weights(result: BacktestResult) -> Chart:
    """Month-end holdings of the champion in the lockbox."""
    months = result.dates_R.astype("datetime64[M]")
    last_R = np.append(months[1:] != months[:-1], True)
    held_AM = result.weights_RA[last_R].T * 100
    labels = months[last_R]

    def draw(width: float) -> Figure:
        height = 0.9 + 0.2 * len(result.tickers)
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        axes.grid(visible=False)
        even = 100 / len(result.tickers)
        tilt = max(float(np.abs(held_AM - even).max()), 1e-9)
        image = axes.imshow(
            held_AM,
            aspect="auto",
            cmap="RdBu",
            vmin=even - tilt,
            vmax=even + tilt,
            interpolation="none",
        )
        axes.set_yticks(range(len(result.tickers)), result.tickers)
        step = max(1, len(labels) // (10 if width == WIDE else 4))
        axes.set_xticks(range(0, len(labels), step), [str(m) for m in labels[::step]])
        figure.colorbar(image, ax=axes, label="% of equity", pad=0.01)
        return figure

    caption = (
        f"Champion's holdings at the end of each month of the lockbox, in percent of equity. White is "
        f"an equal weight, {100 / len(result.tickers):.1f} %; blue is more, red is less."
    )
    return _chart("Weights over time", caption, draw)


def generations(summaries: Sequence[GenerationSummary]) -> Chart:
    """Scores of training and selection by generation."""
    number = [g.generation for g in summaries]
    lines = {
        "best on the leaderboard": ("board_best_score", COLOURS[CHAMPION], "o-"),
        "median agent, selection window": ("median_score", COLOURS[BENCHMARK], "s-"),
        "same agent, training window": ("median_train_score", COLOURS[INDEX], "^--"),
    }

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 3.0 if width == WIDE else 3.4), layout="constrained")
        axes = figure.subplots()
        for label, (field, colour, marks) in lines.items():
            values = [getattr(g, field) for g in summaries]
            heights = [np.nan if v is None else v for v in values]
            axes.plot(number, heights, marks, color=colour, label=label)
        axes.axhline(0.0, color="#444444", lw=0.8)
        axes.set_xticks(number)
        axes.set_xlabel("generation")
        axes.set_ylabel("score")
        figure.legend(loc="outside lower center", ncols=3 if width == WIDE else 1)
        return figure

    caption = (
        "Score: 5 % quantile of the bootstrapped difference of annual Sharpe ratios to equal weight "
        "rebalanced monthly. Above 0, one agent alone would be ahead with 95 % confidence; the best "
        "of many gets there by luck. A training score that rises while the selection score falls is "
        "overfitting."
    )
    return _chart("Scores by generation", caption, draw)


def _few_dates(axes: Axes, width: float, dates_R: np.ndarray) -> None:
    if width == NARROW:
        chosen = dates_R[np.linspace(0, len(dates_R) - 1, 4).astype(int)]
        axes.set_xticks(chosen, [str(day.astype("datetime64[M]")) for day in chosen])
