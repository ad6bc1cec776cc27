"""A noise model written outside the package: the level is one of two known ones, each with probability one half."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

import balson_jax as balson
from balson_jax.problems.noise import Known


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TwoLevels(balson.Noise):
    """Gaussian noise of standard deviation ``small`` or ``large``."""

    small: Any
    large: Any

    def log_likelihoods(self, num_rows, half_square):
        return [Known(level).log_likelihood(num_rows, half_square) for level in (self.small, self.large)]

    def log_likelihood(self, num_rows, half_square):
        return jnp.logaddexp(*self.log_likelihoods(num_rows, half_square)) - jnp.log(2.0)

    def likeliest_level(self, num_rows, half_square):
        small, large = self.log_likelihoods(num_rows, half_square)
        return jnp.where(small > large, self.small, self.large)
