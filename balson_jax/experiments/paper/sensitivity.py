"""How the experiment depends on the settings that the paper does not give, and on the true coefficients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ...dirichlet import MATCH_RULES, MatchRule
from ...fit import fit
from ...posteriors.posterior import Posterior
from ...problems.linear import LinearProblem, linear_problem
from ...samplers import IS
from . import data, experiment, published
from .experiment import Results, Settings

ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.5, 2.0)
MAX_ROUNDS = 10
FLAT = 1.0
DRAWS = (256, 1024, 4096, 16_384)


class Score(NamedTuple):
    """Mean error and sparsity over the data sets of IS (0 rounds) or ISIRS, with the settings that gave them."""

    alpha: float
    match: str
    rounds: int
    num_draws: int
    mse: float
    sparsity: float


def scan(settings: Settings, report: Callable[[str], None] = lambda name: None) -> list[Score]:
    """Return the scores of all concentrations, rules and numbers of rounds, and of other numbers of draws.

    Args:
      settings: the data sets, the number of draws for all rules, and the rule for the other numbers of draws.
      report: called with a description before each of ``len(parts(settings))`` parts.
    """
    fit_key = settings.keys()[1]
    design, targets = experiment.observations(settings)
    shape = len(ALPHAS), settings.datasets, len(settings.theta)
    problem = linear_problem(
        design,
        targets[None],
        total=experiment.TOTAL,
        noise=data.NOISE,
        prior=jnp.broadcast_to(jnp.array(ALPHAS)[:, None, None], shape),
    )
    scores = []
    for match, num_draws in parts(settings):
        report(f"{match}, {num_draws:,} draws")
        method = IS(num_draws, match=match, diagnose_tail=False)
        for rounds, posterior in enumerate(successive(fit_key, problem, method, MAX_ROUNDS)):
            mse, sparsity = (part.mean(-1) for part in experiment.score(posterior.theta, settings.theta))
            means = zip(ALPHAS, mse.tolist(), sparsity.tolist(), strict=True)
            scores += [Score(alpha, match, rounds, num_draws, *pair) for alpha, *pair in means]
    return scores


def parts(settings: Settings) -> list[tuple[MatchRule, int]]:
    """Return the combinations of rule and number of draws that are scanned."""
    rules: list[tuple[MatchRule, int]] = [(match, settings.num_draws) for match in MATCH_RULES]
    return rules + [(settings.match, draws) for draws in DRAWS if draws != settings.num_draws]


def successive(key: jax.Array, problem: LinearProblem, method: IS, rounds: int) -> Iterator[Posterior]:
    """Yield the posteriors of ISIRS after 0, 1, ... rounds. Each round takes the last fit as its prior."""
    key, round_key = jax.random.split(key)
    for index in range(rounds + 1):
        posterior = fit(key, problem, method)
        yield posterior
        problem = dataclasses.replace(problem, prior=posterior.alpha)
        key = jax.random.fold_in(round_key, index)


def reproduces(scores: list[Score]) -> list[Score]:
    """Return the scores of ISIRS at settings where our results are at least as good as the paper's.

    IS must be at least as good as the best of the paper's RS and IS, and ISIRS as the best of the paper's RSIRS and
    ISIRS, both in error and in sparsity.
    """

    def good(score: Score, names: tuple[str, ...]) -> bool:
        best_mse = min(published.MSE[name] for name in names)
        return score.mse <= best_mse and score.sparsity >= max(published.SPARSITY[name] for name in names)

    first = {s._replace(mse=0, sparsity=0) for s in scores if s.rounds == 0 and good(s, ("RS", "IS"))}
    return [
        s
        for s in scores
        if s.rounds and s._replace(rounds=0, mse=0, sparsity=0) in first and good(s, ("RSIRS", "ISIRS"))
    ]


def other_truths(settings: Settings, report: Callable[[str], None] = lambda name: None) -> list[Results]:
    """Run the experiment for each of ``data.TRUTHS``, with the prior of the settings and with a flat prior.

    Args:
      settings: settings of the experiment, of which only the truth and the concentration are varied.
      report: called with a description before each of ``2 * len(data.TRUTHS)`` parts.
    """
    found = []
    for alpha in (settings.alpha, FLAT):
        for name in data.TRUTHS:
            report(f"true θ: {name}, α = {alpha:g}")
            found.append(experiment.run(dataclasses.replace(settings, truth=name, alpha=alpha)))
    return found
