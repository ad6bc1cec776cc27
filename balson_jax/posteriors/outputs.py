"""What a posterior can be turned into: a list of components that matter, tables, data sets of other libraries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from .. import validation
from ..targets.base import PRESENT_SHARE
from .sparse import sparsest
from .support import inclusion

if TYPE_CHECKING:
    from .posterior import Posterior


class Outputs:
    """Methods of a posterior that return it in another form. The packages they need are imported when called."""

    def inclusion(self, threshold: float = PRESENT_SHARE) -> jax.Array:
        """Return the probability that each component exceeds a share of the total, ``(..., P)``.

        A component that may be negative counts by its magnitude. From all draws, if omega has more than 8 components
        and the threshold is the default (``present``, with the error ``present_stderr``); else from the kept draws.

        Args:
          threshold: the share, between 0 and 1.
        """
        posterior = cast("Posterior", self)
        validation.require_share("threshold", threshold)
        if posterior.present is not None and validation.is_concrete(threshold) and float(threshold) == PRESENT_SHARE:
            return posterior.present
        posterior.require_draws("inclusion")
        limit = jnp.asarray(threshold, posterior.mean.dtype) * posterior.total
        return inclusion(posterior.draws, posterior.draw_weights, limit)

    @property
    def knows_inclusion(self) -> bool:
        """Whether ``inclusion()`` is known: from all draws, or because draws were kept."""
        posterior = cast("Posterior", self)
        return posterior.present is not None or bool(posterior.draws.shape[-2])

    def support(self, probability: float = 0.5, threshold: float = PRESENT_SHARE) -> jax.Array:
        """Return which components exceed a share of the total with more than this probability, ``(..., P)``.

        Args:
          probability: between 0 and 1.
          threshold: the share, between 0 and 1.
        """
        validation.require_share("probability", probability)
        return self.inclusion(threshold) > probability

    def sparse(self, problem: Any, tolerance: float = 1.0) -> np.ndarray:
        """Return a sparse estimate of theta, ``(..., P)``: few components, exact zeros elsewhere, on the host.

        It keeps the constraint, and changes the prediction of the mean by no more than a draw of the posterior does
        (root mean square, in units of the noise). No component can be left out without breaking that. Unlike
        ``theta``, it doesn't assume that a Dirichlet describes the posterior. Where more than 64 components are needed
        it is the mean.

        Args:
          problem: the linear problem that was fitted.
          tolerance: the squared change that is allowed, as a multiple of that of draws; more gives fewer components.
        """
        posterior = cast("Posterior", self)
        posterior.require_draws("sparse")
        if not getattr(problem, "is_quadratic", False):
            needed = "sparse needs the linear_problem that was fitted, with a design that is certain"
            raise ValueError(f"problem is a {type(problem).__name__}; {needed}")
        for name in ("batch_shape", "num_params", "constraint"):
            own, wanted = getattr(problem, name), getattr(posterior, name)
            if own != wanted:
                raise ValueError(f"problem has {name}={own!r}, the posterior {wanted!r}; pass the one that was fitted")
        if posterior.constraint.sum_may_be_less is None:
            raise ValueError(f"constraint={posterior.constraint!r} doesn't state its sum: set sum_may_be_less")
        if not all(validation.is_concrete(leaf) for leaf in jax.tree.leaves((posterior, problem, tolerance))):
            raise ValueError("sparse needs concrete values; call it outside jit")
        number = validation.float_array("tolerance", tolerance)
        if number.ndim:
            raise ValueError(f"tolerance has shape {number.shape}; pass one number")
        validation.require_positive("tolerance", number)
        return sparsest(posterior, problem, float(number))

    def to_frame(self, level: float = 0.9) -> Any:
        """Return a tidy pandas ``DataFrame`` with one row per problem and component.

        Columns: ``problem`` (its name or number; ``problem_0``, ``problem_1``, ... if the batch has several axes),
        ``component``, ``mean``, ``std``, ``hdi_low`` and ``hdi_high``, ``inclusion`` (the probability of more than a
        hundredth of the total), ``sparse_mode``, ``status`` in words, ``method`` and ``ess``. What needs kept draws is
        NaN if there are none.

        Args:
          level: of the shortest intervals.
        """
        from . import columns

        validation.require_share("level", level)
        return columns.to_frame(cast("Posterior", self), level)

    def to_csv(self, path: str | os.PathLike, level: float = 0.9) -> None:
        """Write the table of ``to_frame`` to a file of comma-separated values; needs no other package.

        Args:
          path: of the file, which is replaced.
          level: of the shortest intervals.
        """
        from . import columns

        validation.require_share("level", level)
        columns.to_csv(cast("Posterior", self), path, level)

    def to_xarray(self, level: float = 0.9) -> Any:
        """Return an ``xarray.Dataset`` of estimates and diagnostics, with dimensions ``problem`` and ``component``.

        A batch with several axes has ``problem_0``, ``problem_1`` and so on. Names are coordinates. ``status`` is an
        integer; its attributes explain the flags.

        Args:
          level: of the shortest intervals, ``hdi_low`` and ``hdi_high``.
        """
        from . import datasets

        validation.require_share("level", level)
        return datasets.to_xarray(cast("Posterior", self), level)

    def to_datatree(
        self,
        num_draws: int = 1000,
        *,
        key: jax.Array | None = None,
        design: Any = None,
        targets: Any = None,
        noise: Any = None,
        level: float = 0.9,
    ) -> Any:
        """Return an ``xarray.DataTree`` as ArviZ 1.0 takes it; 0.x by ``arviz.InferenceData.from_datatree(tree)``.

        Groups: ``posterior`` has one chain of draws of equal weight, taken from the kept ones by systematic resampling
        and shuffled. Some repeat, so ArviZ's effective sample size says nothing of this fit. That of the fit is in
        ``balson``, with the other diagnostics, the estimates from all draws, and the kept draws with their weights.
        ``sample_stats`` has the number of the kept draw behind each. ``observed_data`` and ``constant_data`` hold what
        is passed.

        ``log_likelihood`` has one number per row and draw, for ``arviz.loo`` and ``arviz.compare``. It needs design
        and targets of a linear problem whose rows are independent and count alike: none of ``weights``, ``mask``,
        ``nuisance``, ``Correlated`` or ``UncertainDesign``. If the noise was estimated under its default prior, the
        level is drawn for each draw; if it was given, pass it again.

        Args:
          num_draws: number of draws in ``posterior``.
          key: for resampling; default ``jax.random.key(0)``.
          design: ``(N, P)``, as for ``linear_problem``.
          targets: ``(..., N)``, as for ``linear_problem``; NaN where a row was dropped.
          noise: as it was given to ``linear_problem``: a standard deviation, for all, per problem or per row, or an
            ``InverseGamma``.
          level: of the shortest intervals in ``balson``.
        """
        from . import datatrees

        validation.require_share("level", level)
        validation.require_at_least("num_draws", num_draws, 1)
        cast("Posterior", self).require_draws("to_datatree")
        data = datatrees.Data.read(cast("Posterior", self), design, targets, noise)
        key = jax.random.key(0) if key is None else validation.typed_key(key)
        return datatrees.to_datatree(cast("Posterior", self), num_draws, key, data, level)
