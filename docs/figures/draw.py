"""Draws the pictures of the documentation: ``make figures``, or ``python docs/figures/draw.py [name ...]``."""

from __future__ import annotations

import pathlib
import sys

import jax
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import balson_jax as balson
from balson_jax.experiments.scenes import simulate, smooth_noise, smooth_spectra

HERE = pathlib.Path(__file__).parent
DARK, MIDDLE, LIGHT, WARM = "#1f2a44", "#5b7bb4", "#c9d4e8", "#c2703d"
SIDE = 32
LEVELS = np.linspace(0.1, 0.95, 12)
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])


def image(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return spectra, pixels ``(SIDE^2, bands)`` and abundances of a scene whose materials lie in smooth patches."""
    rng = np.random.default_rng(seed)
    spectra = smooth_spectra(rng, 100, 4)
    place = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, SIDE)]), -1).reshape(-1, 1, 2)
    centres, widths = rng.uniform(0, 1, (12, 2)), rng.uniform(0.1, 0.25, 12)
    blobs = np.exp(-0.5 * np.square(place - centres).sum(-1) / widths**2)
    field = blobs @ np.repeat(np.eye(4), 3, axis=0)
    abundances = field**3 / (field**3).sum(1, keepdims=True)
    abundances[abundances < 0.05] = 0
    abundances /= abundances.sum(1, keepdims=True)
    count = len(abundances)
    shapes = smooth_noise(rng, count * 4, 100, 20).reshape(count, 4, 100)
    pixels = (abundances[:, :, None] * spectra.T) * (1 + 0.1 * rng.standard_normal((count, 4, 1))) * (1 + 0.05 * shapes)
    pixels = pixels.sum(1) + 0.01 * rng.standard_normal((count, 100))
    return spectra.astype(np.float32), pixels.astype(np.float32), abundances


def scene() -> plt.Figure:
    """Draw abundance, its uncertainty, and coverage before and after learning."""
    spectra, pixels, truth = image(3)
    plain = balson.fit(jax.random.key(0), balson.linear_problem(spectra, pixels))
    learned = balson.learn(jax.random.key(0), spectra, pixels, progress=False)
    after = balson.fit(jax.random.key(0), learned.problem)
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained", width_ratios=[1, 1, 1, 1.25])
    k = int(np.argmax(truth.std(0)))
    shown = (("true abundance", truth[:, k]), ("posterior mean", np.asarray(after.mean)[:, k]))
    for ax, (title, values) in zip(axes, shown, strict=False):
        drawn = ax.imshow(values.reshape(SIDE, SIDE), cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(title, fontsize=10)
    figure.colorbar(drawn, ax=axes[1], shrink=0.8)
    drawn = axes[2].imshow(
        np.asarray(after.std)[:, k].reshape(SIDE, SIDE), cmap="cividis", vmin=0, interpolation="nearest"
    )
    axes[2].set_title("standard deviation", fontsize=10)
    figure.colorbar(drawn, ax=axes[2], shrink=0.8)
    for ax in axes[:3]:
        ax.set(xticks=[], yticks=[])
    ax = axes[3]
    ax.plot([0, 1], [0, 1], color="0.6", lw=1, ls=":")
    for label, found, style in (("plain fit", plain, "--o"), ("after learn", after, "-s")):
        held = [float(balson.metrics.coverage(*found.hdi(level), truth)) for level in LEVELS]
        ax.plot(LEVELS, held, style, color=WARM if found is plain else DARK, ms=3, lw=1.5, label=label)
    ax.set(xlabel="level of the intervals", ylabel="share that holds the truth", xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def constraints() -> plt.Figure:
    """Draw what the constraints allow of two coefficients, with draws of a flat prior."""
    from balson_jax.problems.constraints import CONSTRAINTS

    figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained", sharex=True, sharey=True)
    rng = np.random.default_rng(0)
    for ax, (name, constraint) in zip(axes, CONSTRAINTS.items(), strict=True):
        count = {"equal": 2, "at_most": 3, "signed": 4, "signed_at_most": 5}[name]
        theta = np.asarray(constraint.unlift(rng.dirichlet(np.ones(count), 1200)))
        ax.plot([0, 1, 0, -1, 0], [1, 0, -1, 0, 1], color="0.8", lw=1)
        ax.plot(theta[:, 0], theta[:, 1], ".", color=MIDDLE, ms=2, alpha=0.6)
        ax.axhline(0, color="0.85", lw=0.8, zorder=0)
        ax.axvline(0, color="0.85", lw=0.8, zorder=0)
        ax.set_title(f'"{name}"', fontsize=10)
        ax.set(aspect="equal", xlabel=r"$\theta_1 / C$")
    axes[0].set_ylabel(r"$\theta_2 / C$")
    return figure


def priors() -> plt.Figure:
    """Draw three components under three concentrations."""
    figure, axes = plt.subplots(1, 3, figsize=(8.5, 2.7), layout="constrained")
    rng = np.random.default_rng(0)
    for ax, alpha in zip(axes, (0.2, 1.0, 5.0), strict=True):
        place = rng.dirichlet(np.full(3, alpha), 1200) @ CORNERS
        ax.plot(*CORNERS[[0, 1, 2, 0]].T, color="0.6", lw=1)
        ax.plot(*place.T, ".", color=MIDDLE, ms=2.5, alpha=0.5)
        ax.set_title(f"prior={alpha:g}", fontsize=10)
        ax.set(aspect="equal", xticks=[], yticks=[])
        ax.set_frame_on(False)
    return figure


def methods() -> plt.Figure:
    """Draw the share of effective draws as data get stronger, from the prior and from the truncated Gaussian."""
    scenes = simulate(1, "none", num_pixels=64, num_bands=60, num_materials=6, noise=0.0)
    levels = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
    figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    rng = np.random.default_rng(0)
    for method, label, style in ((balson.IS(8192), "IS, from the prior", "--o"), (balson.TG(8192), "TG", "-s")):
        shares = []
        for level in levels:
            targets = scenes.targets + level * rng.standard_normal(scenes.targets.shape).astype(np.float32)
            problem = balson.linear_problem(scenes.design, targets, noise=float(level))
            shares.append(
                np.quantile(np.asarray(balson.fit(jax.random.key(0), problem, method).ess) / 8192, [0.1, 0.5, 0.9])
            )
        low, middle, high = np.transpose(shares)
        colour = DARK if label == "TG" else WARM
        ax.fill_between(levels, low, high, color=colour, alpha=0.15, lw=0)
        ax.plot(levels, middle, style, color=colour, ms=4, label=label)
    ax.axhline(400 / 8192, color="0.6", lw=1, ls=":")
    ax.annotate(
        "400 of 8,192 draws",
        (levels[-1], 400 / 8192),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        fontsize=8,
    )
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="noise of a band, 6 materials, 60 bands",
        ylabel="effective share of the draws",
    )
    ax.invert_xaxis()
    ax.legend(frameon=False, fontsize=9, loc="lower left")
    return figure


PICTURES = {function.__name__: function for function in (scene, constraints, priors, methods)}


def main() -> None:
    """Draw the pictures that are named, or all."""
    for name in sys.argv[1:] or PICTURES:
        figure = PICTURES[name]()
        figure.savefig(HERE / f"{name}.png", dpi=90, metadata={"Software": None}, pil_kwargs={"optimize": True})
        plt.close(figure)
        print(name, (HERE / f"{name}.png").stat().st_size)


if __name__ == "__main__":
    main()
