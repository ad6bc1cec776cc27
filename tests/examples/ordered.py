"""A constraint written outside the package: shares that don't increase, ``theta_1 >= theta_2 >= ... >= 0``, of sum C.

Each component of omega spreads its mass evenly over the first k parameters, so that ``theta / C = T omega`` with
``T[p, k] = 1 / k`` for ``p <= k``.
"""

from __future__ import annotations

import jax.numpy as jnp

import balson_jax as balson


class Ordered(balson.Constraint):
    """Nonincreasing shares of sum C."""

    name = "ordered"
    label = "nonincreasing, sum ="
    min_params = 2
    shares_are_beta = True

    def num_params(self, num_components):
        return num_components

    def matrix(self, size, dtype):
        return jnp.triu(jnp.ones((size, size), dtype)) / jnp.arange(1, size + 1, dtype=dtype)

    def lift(self, columns):
        return columns @ self.matrix(columns.shape[-1], columns.dtype)

    def unlift(self, omega, axis=-1):
        moved = jnp.moveaxis(omega, axis, -1)
        return jnp.moveaxis(moved @ self.matrix(moved.shape[-1], omega.dtype).T, -1, axis)
