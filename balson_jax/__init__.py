"""Bayesian least squares on the simplex, in JAX.

Fit ``y = A theta + noise`` with ``theta >= 0`` and ``sum(theta) = C``, one problem or a million, and get the posterior:

1. ``linear_problem(design, target, ...)`` describes the problem and validates it: the constraint (a sum of C, or of
   at most C, or signs), the prior, the noise (estimated unless given), weights and gaps. The
   design may be an ``UncertainDesign``. ``model_problem(predict, ...)`` takes any JAX function in place of ``A theta``.
2. ``fit(key, problem, method)`` returns a ``Posterior``: mean, standard deviation, intervals, draws, the approximating
   Dirichlet ``alpha``, its sparse mode ``theta``, the noise, the evidence, and whether to trust them.
3. Methods are the paper's ``RS``, ``IS``, ``RSIRS`` and ``ISIRS``; for strong data ``TG``, ``HitAndRun`` and
   ``Variational``; and ``Auto``, the default, which chooses for each problem.
4. ``compare`` ranks models by their evidence, ``tune`` picks prior, total and noise by it.
5. ``learn`` estimates noise and prior from a batch of targets, so that intervals hold for real data; ``check`` reports
   whether a fit is believable.

Tables of pandas, polars and xarray go in with their names, and ``posterior.to_frame()`` and its relatives come out.
``plot`` has pictures, ``synthetic_control`` and ``mixing`` are whole analyses, ``balson_jax.estimator`` is for
scikit-learn, and the command ``balson fit`` is for files.

Beside these: ``least_squares`` (the constrained optimum with a certified bound), ``density`` (log-likelihood and
log-prior of draws), ``dirichlet`` (the distribution, and fits to moments), ``random`` (fast draws, drop-ins for
``jax.random``), ``parallel`` (many devices), ``fit_stream`` (data larger than memory), ``warm_up`` (compile ahead),
``reference`` (LASSO, interior point, Bayesian LASSO: what the paper compares with), ``metrics`` (error, sparsity,
coverage).
"""

import sys

from . import dirichlet, metrics, plot, random, reference
from .execution import parallel
from .execution.stream import fit_stream
from .execution.warm_up import warm_up
from .experiments import paper as _paper  # noqa: F401
from .fit import fit
from .labels import Labels
from .learning import Check, Comparison, Learned, Tuning, check, compare, learn, tune
from .least_squares import LeastSquares, least_squares
from .posteriors.component import Component
from .posteriors.concentration import ConcentrationPosterior
from .posteriors.posterior import FitError, Posterior, Prediction, Slack
from .problems.base import Problem
from .problems.constraints import Constraint
from .problems.hyperprior import CommonConcentration
from .problems.linear import LinearProblem, linear_problem
from .problems.model import ModelProblem, model_problem
from .problems.noise import Correlated, InverseGamma, Noise
from .problems.noise_posterior import NoisePosterior
from .problems.uncertain import UncertainProblem
from .problems.uncertain_design import UncertainDesign
from .recipes import AverageEffect, Mixing, SyntheticControl, mixing, synthetic_control
from .samplers import IS, ISIRS, RS, RSIRS, TG, Auto, HitAndRun, Sampler, Variational
from .status import Status
from .targets import functions as density
from .version import __version__

# Modules that moved stay importable under their former names.
_MOVED = {
    "auto": "samplers.auto",
    "constraints": "problems.constraints",
    "density": "targets.functions",
    "model": "problems.model",
    "noise": "problems.noise",
    "paper": "experiments.paper",
    "parallel": "execution.parallel",
    "posterior": "posteriors.posterior",
    "problem": "problems.linear",
    "selection": "learning",
    "stream": "execution.stream",
}
for _old, _new in _MOVED.items():
    sys.modules[f"{__name__}.{_old}"] = sys.modules[f"{__name__}.{_new}"]

__all__ = [
    "IS",
    "ISIRS",
    "RS",
    "RSIRS",
    "TG",
    "Auto",
    "AverageEffect",
    "Check",
    "CommonConcentration",
    "Comparison",
    "Component",
    "ConcentrationPosterior",
    "Constraint",
    "Correlated",
    "FitError",
    "HitAndRun",
    "InverseGamma",
    "Labels",
    "Learned",
    "LeastSquares",
    "LinearProblem",
    "Mixing",
    "ModelProblem",
    "Noise",
    "NoisePosterior",
    "Posterior",
    "Prediction",
    "Problem",
    "Sampler",
    "Slack",
    "Status",
    "SyntheticControl",
    "Tuning",
    "UncertainDesign",
    "UncertainProblem",
    "Variational",
    "__version__",
    "check",
    "compare",
    "density",
    "dirichlet",
    "fit",
    "fit_stream",
    "learn",
    "least_squares",
    "linear_problem",
    "metrics",
    "mixing",
    "model_problem",
    "parallel",
    "plot",
    "random",
    "reference",
    "synthetic_control",
    "tune",
    "warm_up",
]
