"""Bayesian least squares on the simplex, in JAX.

Fit ``y = A theta + noise`` with ``theta >= 0`` and ``sum(theta) = C``, one problem or a million, and get the posterior:

1. ``linear_problem(design, target, ...)`` says what is fitted, and checks it: the constraint (a sum of C, or of at most
   C, or signs), the prior, the noise (estimated unless given), weights and gaps. ``model_problem(predict, ...)`` takes
   any JAX function in place of ``A theta``.
2. ``fit(key, problem, method)`` returns a ``Posterior``: mean, standard deviation, intervals, draws, the approximating
   Dirichlet ``alpha``, its sparse mode ``theta``, the noise, the evidence, and whether to trust them.
3. Methods are the paper's ``RS``, ``IS``, ``RSIRS`` and ``ISIRS``; for strong data ``TG``, ``HitAndRun`` and
   ``Variational``; and ``Auto``, the default, which chooses for each problem.
4. ``compare`` ranks models by their evidence, ``tune`` picks prior, total and noise by it.

Beside these: ``least_squares`` (the constrained optimum with a certified bound), ``density`` (log-likelihood and
log-prior of draws), ``dirichlet`` (the distribution, and fits to moments), ``random`` (fast draws, drop-ins for
``jax.random``), ``parallel`` (many devices), ``fit_stream`` (data larger than memory), ``reference`` (LASSO, interior
point, Bayesian LASSO: what the paper compares with), ``metrics`` (error, sparsity, coverage).
"""

from . import density, dirichlet, metrics, parallel, random, reference
from .auto import Auto
from .fit import fit
from .least_squares import LeastSquares, least_squares
from .model import ModelProblem, model_problem
from .noise import Correlated, InverseGamma, NoisePosterior
from .posterior import FitError, Posterior, Prediction, Slack
from .problem import LinearProblem, Problem, linear_problem
from .samplers import IS, ISIRS, RS, RSIRS, TG, HitAndRun, Variational
from .selection import Comparison, Tuning, compare, tune
from .status import Status
from .stream import fit_stream
from .version import __version__

__all__ = [
    "IS",
    "ISIRS",
    "RS",
    "RSIRS",
    "TG",
    "Auto",
    "Comparison",
    "Correlated",
    "FitError",
    "HitAndRun",
    "InverseGamma",
    "LeastSquares",
    "LinearProblem",
    "ModelProblem",
    "NoisePosterior",
    "Posterior",
    "Prediction",
    "Problem",
    "Slack",
    "Status",
    "Tuning",
    "Variational",
    "__version__",
    "compare",
    "density",
    "dirichlet",
    "fit",
    "fit_stream",
    "least_squares",
    "linear_problem",
    "metrics",
    "model_problem",
    "parallel",
    "random",
    "reference",
    "tune",
]
