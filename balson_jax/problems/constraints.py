"""Constraints on theta, each an equality on a simplex: the lifting of theta to ``omega``, and back.

With P parameters theta and K components of ``omega >= 0``, ``sum(omega) = 1``:

| name               | constraint                            | omega                        | K       |
|--------------------|---------------------------------------|------------------------------|---------|
| ``equal``          | ``theta >= 0, sum(theta) = C``        | theta / C                    | P       |
| ``at_most``        | ``theta >= 0, sum(theta) <= C``       | theta / C, slack             | P + 1   |
| ``signed``         | ``theta = plus - minus``, both        | plus / C, minus / C          | 2 P     |
|                    | nonnegative, of sum C                 |                              |         |
| ``signed_at_most`` | the same with a sum of at most C      | plus / C, minus / C, slack   | 2 P + 1 |

Both signed constraints keep ``sum(|theta|) <= C``: where plus and minus are both positive they cancel.

To add a constraint, subclass ``Constraint``, and pass an instance as ``constraint=``. One line in ``CONSTRAINTS`` gives
it a name that users can pass instead.
"""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp

from .. import dirichlet, validation


class Constraint(abc.ABC):
    """A set of theta that is a linear image of the simplex: ``theta / C = T omega``.

    An instance has no arrays: it is static metadata of problems and posteriors. Two are equal if they have the same
    class and attributes. A constraint also equals its name, so that ``problem.constraint == "equal"`` works.

    A complete constraint, shares that don't increase (component k of omega spreads its mass over the first k of them):

    >>> class Ordered(Constraint):
    ...     name, label, min_params = "ordered", "nonincreasing, sum =", 2
    ...
    ...     def num_params(self, num_components):
    ...         return num_components
    ...
    ...     def matrix(self, size):
    ...         return jnp.triu(jnp.ones((size, size))) / jnp.arange(1, size + 1)
    ...
    ...     def lift(self, columns):
    ...         return columns @ self.matrix(columns.shape[-1])
    ...
    ...     def unlift(self, omega, axis=-1):
    ...         moved = jnp.moveaxis(omega, axis, -1)
    ...         return jnp.moveaxis(moved @ self.matrix(moved.shape[-1]).T, -1, axis)
    >>> import balson_jax as balson
    >>> problem = balson.linear_problem(jnp.eye(3), jnp.array([0.2, 0.5, 0.3]), noise=0.1, constraint=Ordered())
    >>> mean = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=4000)).mean
    >>> bool((jnp.diff(mean) <= 0).all())
    True
    """

    name: str
    """The name that users pass and that files store."""

    label: str
    """The constraint as the printed table shows it, before the total: ``"sum ="``."""

    min_params = 1
    """The smallest number of parameters that leaves something to estimate."""

    has_slack = False
    """Whether the last component of omega is the unused part of the total."""

    theta_is_omega = False
    """Whether theta / C is the first P components of omega, so that their moments need no computation."""

    sum_may_be_less: bool | None = None
    """Whether ``sum(|theta|)`` may be below C; ``None`` if no sum of theta is constrained."""

    shares_are_beta = False
    """Whether theta / C lies between 0 and 1, so that a Beta distribution can describe it."""

    @abc.abstractmethod
    def num_params(self, num_components: int) -> int:
        """Return the number P of parameters for K components."""

    @abc.abstractmethod
    def lift(self, columns: jax.Array) -> jax.Array:
        """Return ``columns @ T``, ``(..., K)``, whose product with omega is that of ``(..., P)`` with theta / C."""

    @abc.abstractmethod
    def unlift(self, omega: jax.Array, axis: int = -1) -> jax.Array:
        """Return theta / C from omega, whose components are on the axis."""

    def prior_sizes(self, num_params: int) -> tuple[int, ...]:
        """Return how many concentrations a user may pass: one per parameter first, then other numbers."""
        return (num_params,)

    def lift_prior(self, prior: jax.Array, slack_prior: jax.Array, num_params: int) -> jax.Array:
        """Return the concentrations ``(..., K)`` of omega.

        Args:
          prior: concentrations ``(..., n)`` with n one of ``prior_sizes``.
          slack_prior: concentration of the slack, ``(...)``; ignored where the constraint has none.
          num_params: the number P.
        """
        return prior

    def prior_moments(self, prior: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and variance of theta / C under ``Dir(prior)``, ``(..., P)``.

        With m the mean of omega, ``Var(T omega) = (T^2 m - (T m)^2) / (sum(prior) + 1)``, squares taken by entry.
        """
        num_params = self.num_params(prior.shape[-1])
        columns = self.lift(jnp.eye(num_params, dtype=prior.dtype))
        middle = dirichlet.mean(prior)
        mean = jnp.einsum("pk,...k->...p", columns, middle)
        square = jnp.einsum("pk,...k->...p", jnp.square(columns), middle)
        return mean, (square - jnp.square(mean)) / (prior.sum(-1, keepdims=True) + 1)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other == self.name
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        # A digest of a stream's arguments is made from this.
        attributes = ", ".join(f"{name}={value!r}" for name, value in sorted(vars(self).items()))
        return f"{self.name!r}({attributes})" if attributes else repr(self.name)

    def __str__(self) -> str:
        return self.name


class Equal(Constraint):
    """``theta >= 0`` and ``sum(theta) = C``."""

    name = "equal"
    label = "sum ="
    min_params = 2
    theta_is_omega = True
    sum_may_be_less = False
    shares_are_beta = True

    def num_params(self, num_components: int) -> int:
        """Return the number P of parameters for K components."""
        return num_components

    def lift(self, columns: jax.Array) -> jax.Array:
        """Return the columns as they are."""
        return columns

    def unlift(self, omega: jax.Array, axis: int = -1) -> jax.Array:
        """Return omega as it is."""
        return omega


class Signed(Constraint):
    """``theta = plus - minus``, both nonnegative, of sum C together."""

    name = "signed"
    label = "sum of |theta| ≤"
    sum_may_be_less = True

    def num_params(self, num_components: int) -> int:
        """Return the number P of parameters for K components."""
        return num_components // 2

    def lift(self, columns: jax.Array) -> jax.Array:
        """Return the columns of plus and of minus."""
        return jnp.concatenate([columns, -columns], axis=-1)

    def unlift(self, omega: jax.Array, axis: int = -1) -> jax.Array:
        """Return plus less minus."""
        count = omega.shape[axis] // 2
        plus, minus = (jax.lax.slice_in_dim(omega, i * count, (i + 1) * count, axis=axis) for i in (0, 1))
        return plus - minus

    def prior_sizes(self, num_params: int) -> tuple[int, ...]:
        """Return P, for both signs alike, and 2 P."""
        return num_params, 2 * num_params

    def lift_prior(self, prior: jax.Array, slack_prior: jax.Array, num_params: int) -> jax.Array:
        """Return the concentrations of plus and of minus."""
        return jnp.concatenate([prior, prior], axis=-1) if prior.shape[-1] == num_params else prior


class _Slackened(Constraint):
    """Adds one component with a zero column, which takes up the unused part of the total."""

    min_params = 1
    has_slack = True
    sum_may_be_less = True

    def num_params(self, num_components: int) -> int:
        return super().num_params(num_components - 1)  # type: ignore[safe-super]

    def lift(self, columns: jax.Array) -> jax.Array:
        lifted = super().lift(columns)  # type: ignore[safe-super]
        return jnp.concatenate([lifted, jnp.zeros_like(columns[..., :1])], axis=-1)

    def unlift(self, omega: jax.Array, axis: int = -1) -> jax.Array:
        used = jax.lax.slice_in_dim(omega, 0, omega.shape[axis] - 1, axis=axis)
        return super().unlift(used, axis)  # type: ignore[safe-super]

    def lift_prior(self, prior: jax.Array, slack_prior: jax.Array, num_params: int) -> jax.Array:
        lifted = super().lift_prior(prior, slack_prior, num_params)
        batch = jnp.broadcast_shapes(lifted.shape[:-1], slack_prior.shape)
        own = jnp.broadcast_to(lifted, (*batch, lifted.shape[-1]))
        return jnp.concatenate([own, jnp.broadcast_to(slack_prior, batch)[..., None]], axis=-1)


class AtMost(_Slackened, Equal):
    """``theta >= 0`` and ``sum(theta) <= C``."""

    name = "at_most"
    label = "sum ≤"


class SignedAtMost(_Slackened, Signed):
    """``theta = plus - minus``, both nonnegative, of sum at most C together."""

    name = "signed_at_most"


CONSTRAINTS: dict[str, Constraint] = {
    constraint.name: constraint for constraint in (Equal(), AtMost(), Signed(), SignedAtMost())
}


def named(constraint: Any) -> Constraint:
    """Return the constraint that a name or an instance stands for, or raise ``ValueError``."""
    if isinstance(constraint, Constraint):
        return constraint
    validation.require_choice("constraint", constraint, tuple(CONSTRAINTS))
    return CONSTRAINTS[constraint]
