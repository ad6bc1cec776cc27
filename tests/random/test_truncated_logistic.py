"""Cut logistic distributions: quantiles and densities in high precision, and how close they are to normal ones."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from balson_jax.random.truncated_logistic import CURVATURE, REACH, cut

INTERVALS = [  # where they begin, and their widths
    (-3.0, 8.0),
    (-0.9, 110.0),
    (1.25, 2.9),
    (1.6, 9e-4),
    (40.0, 1e3),
    (2e4, 0.6),
    (-2e4, 0.5),
    (-160.0, 170.0),
    (-6.0, 10.0),
    (-1e6, 1e6 - 2.0),
]
SHARES = [2.0**-30, 1e-3, 0.4, 0.9, 1 - 2.0**-20]


class Exact:
    """The matched logistic distribution of an interval, in 40 digits."""

    def __init__(self, low, width):
        low, width = mpmath.mpf(low), mpmath.mpf(width)
        self.turned = low + width / 2 < 0
        near = -low - width if self.turned else low
        self.skipped, near = max(-REACH - near, 0), max(near, -REACH)
        self.scale = 1 / mpmath.sqrt(max(near, 0) ** 2 + mpmath.mpf(CURVATURE))
        self.first = 2 * mpmath.atanh(near * self.scale) if near > 0 else near / self.scale
        self.last = self.first + (width - self.skipped) / self.scale
        self.mass = above(self.first) - above(self.last)

    def distances(self, below):
        share = 1 - mpmath.mpf(below) if self.turned else mpmath.mpf(below)
        rest = above(self.first) - share * self.mass
        place = mpmath.log((1 - rest) / rest)
        ends = (place - self.first) * self.scale + self.skipped, (self.last - place) * self.scale
        return ends[::-1] if self.turned else ends

    def log_density(self, from_low, from_high):
        place = self.first + ((from_high if self.turned else from_low) - self.skipped) / self.scale
        return mpmath.log(above(place) * (1 - above(place)) / self.scale / self.mass)


def above(place):
    return 1 / (1 + mpmath.exp(place))


@pytest.mark.parametrize(("low", "width"), INTERVALS)
def test_quantiles_and_densities(low, width):
    low, width = np.float32(low), np.float32(width)
    below = np.float32(SHARES)
    own = cut(jnp.float32(low), jnp.float32(width))
    found = own.quantile(jnp.asarray(below), jnp.asarray(1 - below.astype(float), jnp.float32))
    density = own.log_density(*found)
    with mpmath.workdps(40):
        exact = Exact(float(low), float(width))
        for number, share in enumerate(below):
            ends = [float(end[number]) for end in found]
            truth = [float(end) for end in exact.distances(float(share))]
            np.testing.assert_allclose(ends, truth, rtol=3e-6)
            # A density is as exact as the distance that it is given.
            assert abs(float(density[number]) - float(exact.log_density(*map(mpmath.mpf, ends)))) < 1e-5


@pytest.mark.parametrize("near", [-8.0, -2.0, -0.5, 0.0, 0.7, 2.0, 5.0, 60.0])
def test_draws_stand_for_normal_ones(near):
    """At least 98 % of draws are effective for the truncated normal distribution, and no weight exceeds 1.2."""
    width = 20 / (1 + max(near, 0)) + max(-near, 0)
    own = cut(jnp.float32(near), jnp.float32(width))

    grid = np.linspace(0, width, 400)
    target = np.exp(-grid * (near + 0.5 * grid) - 0.5 * min(near, 0) ** 2)
    density = np.exp(np.asarray(own.log_density(jnp.float32(grid), jnp.float32(width - grid)), float))
    target = target / np.trapezoid(target, grid)
    assert abs(np.trapezoid(density, grid) - 1) < 2e-3
    weights = target / density
    assert 1 / np.trapezoid(target * weights, grid) > 0.98
    assert weights.max() < 1.2
