"""Statistics against the papers' numbers, skfolio and a scalar bootstrap."""

import numpy as np
import pytest

from podracer.evaluation import statistics


@pytest.mark.parametrize(
    ("trials", "expected"),
    [(2, 0.519755), (5, 1.192594), (10, 1.574598), (80, 2.451071), (1000, 3.255122)],
)
def test_the_best_of_n_unskilled_trials(trials, expected):
    assert statistics.expected_best_sharpe(trials, 1.0) == pytest.approx(expected, abs=1e-6)


def test_the_example_of_the_deflated_sharpe_paper():
    threshold = statistics.expected_best_sharpe(100, 0.5 / 250)
    found = statistics.probabilistic_sharpe(2.5 / np.sqrt(250), threshold, 1250, -3, 10)
    assert threshold == pytest.approx(0.113172, abs=1e-6)
    assert found == pytest.approx(0.900397, abs=1e-6)


def wave():
    t = np.arange(240)
    return 0.001 + 0.01 * np.sin(0.9 * t) + 0.004 * np.cos(2.3 * t) ** 3


def test_the_deflated_sharpe_of_a_wave_with_six_rivals():
    rivals = [-0.06783248, -0.03025746, -0.00957241, 0.00795377, 0.03662285, 0.07083041]
    own = statistics.sharpe_per_session(wave())
    variance = np.var([*rivals, own], ddof=1)
    assert own == pytest.approx(0.14290431, abs=1e-8)
    assert statistics.deflated_sharpe(wave(), 1, 0.0) == pytest.approx(0.98618313, abs=1e-6)
    assert statistics.deflated_sharpe(wave(), 7, variance) == pytest.approx(0.7615183, abs=1e-6)


def test_more_trials_deflate_more():
    found = [statistics.deflated_sharpe(wave(), n, 1 / 240) for n in (1, 80, 100_000)]
    assert found[0] > found[1] > found[2]


def test_an_annualised_sharpe_is_refused():
    with pytest.raises(ValueError, match="divide an annualised one"):
        statistics.probabilistic_sharpe(2.0, 0.0, 252)


def test_the_years_needed_are_the_minimum_track_record():
    returns = np.random.default_rng(0).normal(0.0, 0.01, 4000)
    returns += 0.001 - returns.mean()
    sharpe = statistics.sharpe_per_session(returns)
    found = statistics.years_needed(returns)
    # Nearly normal returns: 1 + (1 + SR^2/2)(1.645/SR)^2 sessions.
    expected = (1 + (1 + sharpe**2 / 2) * (1.6448536 / sharpe) ** 2) / 252
    assert found.value == pytest.approx(expected, rel=0.02)
    assert statistics.years_needed(-returns).reason == "the returns are not positive on average"


def test_spa_sees_a_planted_winner_and_no_other():
    rng = np.random.default_rng(3)
    excess = rng.normal(0, 0.014, (504, 40))
    assert statistics.superior_predictive_ability(excess) > 0.3
    excess[:, 7] += 0.004
    assert statistics.superior_predictive_ability(excess) < 0.01


def test_resampled_blocks_have_a_mean_length_of_ten_and_depend_on_market_and_window_only():
    rows = statistics.bootstrap_indices(1000, "abc", "selection")
    assert np.array_equal(rows, statistics.bootstrap_indices(1000, "abc", "selection"))
    assert not np.array_equal(rows, statistics.bootstrap_indices(1000, "abd", "selection"))
    assert not np.array_equal(rows, statistics.bootstrap_indices(1000, "abc", "train"))
    follows = (rows[:, 1:] - rows[:, :-1]) % 1000 == 1
    # A block ends with chance 1/10; 1 in 1000 new blocks follows on by accident.
    assert follows.mean() == pytest.approx(0.9 + 0.1 / 1000, abs=0.001)
    assert np.bincount(rows.ravel(), minlength=1000).min() > 800


def test_the_score_is_the_quantile_of_paired_differences():
    rng = np.random.default_rng(5)
    returns, benchmark = rng.normal(0.001, 0.01, (300, 3)), rng.normal(0, 0.01, 300)
    rows = statistics.bootstrap_indices(300, "m", "w")
    found = statistics.score(returns, benchmark, rows)

    def annual(r):
        return np.mean(r) / np.std(r, ddof=1) * 252**0.5

    for n in range(3):
        differences = sorted(annual(returns[i, n]) - annual(benchmark[i]) for i in rows)
        assert found[n] == pytest.approx(np.quantile(differences, 0.05))
    assert statistics.score(benchmark[:, None], benchmark, rows).tolist() == [0.0]
