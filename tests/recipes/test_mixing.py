"""Mixing models: posteriors against quadrature in NumPy, the forms of tables, consumers outside the polygon."""

import sys
import warnings

import numpy as np
import pytest
import quadrature
from scipy import stats

import balson_jax as balson
from balson_jax.recipes import mixing
from balson_jax.recipes.tracers import read

pandas = pytest.importorskip("pandas")

METHOD = balson.IS(16_384)
MEAN = np.array([[-27.0, -20.0, -18.0], [3.0, 12.0, 5.0]])
STD = np.array([[1.0, 0.8, 1.2], [0.9, 1.1, 1.0]])
COUNT = np.array([4.0, 10.0, 20.0])
SHIFT, SHIFT_STD = np.array([[0.4, 0.5, 0.6], [3.4, 3.0, 3.2]]), np.array([[0.2, 0.3, 0.4], [0.5, 0.6, 0.7]])
NAMES = ["alga", "fish", "moss"]


def table(mean, std, **more):
    columns = {"Source": NAMES}
    for j, tracer in enumerate(("d13C", "d15N")):
        columns |= {f"Mean{tracer}": mean[j], f"SD{tracer}": std[j]}
    return pandas.DataFrame({**columns, **more})


SOURCES = table(MEAN, STD, n=COUNT)
FACTORS = table(SHIFT, SHIFT_STD).iloc[::-1].rename(columns={"Source": "Unnamed: 0"})
CONSUMERS = pandas.DataFrame(
    {"id": ["p1", "p2", "p3"], "d13C": [-22.0, -23.0, -19.0], "d15N": [10.0, 9.0, 11.5], "site": ["w", "w", "e"]},
).set_index("id")


def truth(observed, members=1, noise=0.3, count=COUNT, alpha=(1.0, 1.0, 1.0)):
    """Return mean and standard deviation of the shares, integrated over the simplex."""
    omega, weights = quadrature.simplex_rule(np.asarray(alpha))
    one = (STD**2 + SHIFT_STD**2) / members + STD**2 / count
    spread = np.sqrt(noise**2 / members + omega**2 @ one.T)
    log_lik = stats.norm.logpdf(observed, omega @ (MEAN + SHIFT).T, spread).sum(-1)
    found = quadrature.integrate(log_lik, weights, omega)
    return found.mean, np.sqrt(found.variance)


@pytest.fixture(scope="module")
def found():
    return mixing(CONSUMERS, SOURCES, discrimination=FACTORS, group="site", noise=0.3, method=METHOD)


def test_consumers_against_quadrature(found):
    assert list(found.table["consumer"]) == [name for name in ("p1", "p2", "p3") for _ in NAMES]
    for name, row in CONSUMERS.iterrows():
        own = found.table[found.table["consumer"] == name]
        mean, std = truth(row[["d13C", "d15N"]].to_numpy(float))
        assert list(own["source"]) == NAMES
        np.testing.assert_allclose(own["mean"], mean, atol=0.01)
        np.testing.assert_allclose(own["std"], std, rtol=0.06)
        assert ((own["low"] <= own["mean"]) & (own["mean"] <= own["high"])).all()


def test_groups_against_quadrature(found):
    """Members' own errors average; those of the sources' means are shared by all."""
    observed = CONSUMERS.groupby("site", sort=False)[["d13C", "d15N"]].mean()
    assert list(dict.fromkeys(found.groups["group"])) == ["w", "e"]
    for name, members in (("w", 2), ("e", 1)):
        own = found.groups[found.groups["group"] == name]
        mean, std = truth(observed.loc[name].to_numpy(), members)
        np.testing.assert_allclose(own["mean"], mean, atol=0.01)
        np.testing.assert_allclose(own["std"], std, rtol=0.06)
    alone = found.table[found.table["consumer"] == "p3"]
    np.testing.assert_allclose(alone["mean"], found.groups[found.groups["group"] == "e"]["mean"], atol=1e-5)


def test_priors_and_default_noise_and_exact_means():
    """Without n means are exact. The default noise is a tenth of the sources' root mean square deviation."""
    options = {"discrimination": FACTORS, "method": METHOD, "prior": {"moss": 0.5, "alga": 2.0, "fish": 1.0}}
    found = mixing(CONSUMERS, SOURCES.drop(columns="n"), **options)
    noise = 0.1 * np.sqrt((STD**2 + SHIFT_STD**2).mean(1))
    np.testing.assert_allclose(found.noise, noise, rtol=1e-12)
    for k, observed in enumerate(CONSUMERS[["d13C", "d15N"]].to_numpy()):
        mean, std = truth(observed, noise=noise, count=np.inf, alpha=(2.0, 1.0, 0.5))
        np.testing.assert_allclose(found.posterior.mean[k], mean, atol=0.015)
        np.testing.assert_allclose(found.posterior.std[k], std, rtol=0.1)
    assert found.groups is None
    assert found.group_posterior is None


def test_intervals_hold_as_often_as_they_say():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), 80)
    # Consumers of one study share the sources' means, which are exact here.
    own = MEAN + STD * rng.normal(size=(80, 2, 3)) + SHIFT + SHIFT_STD * rng.normal(size=(80, 2, 3))
    observed = np.einsum("njk,nk->nj", own, shares) + 0.3 * rng.normal(size=(80, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one in a hundred lies outside
        found = mixing(
            pandas.DataFrame(observed, columns=["d13C", "d15N"]),
            SOURCES.drop(columns="n"),
            discrimination=FACTORS,
            noise=0.3,
            method=METHOD,
        )
    held = (found.table["low"] <= shares.ravel()) & (shares.ravel() <= found.table["high"])
    assert 0.83 < held.mean() < 0.96
    assert found.consumers["outside"].sum() <= 4


def test_a_consumer_outside_the_polygon_is_told():
    far = CONSUMERS.assign(d15N=[10.0, 9.0, 30.0])
    with pytest.warns(UserWarning, match="outside the mixing polygon: p3"):
        found = mixing(far, SOURCES, discrimination=FACTORS, group="site", noise=0.3, method=METHOD)
    assert list(found.consumers["outside"]) == [False, False, True]
    shares = np.asarray(found.posterior.mean[2], float)
    variance = 0.09 + (STD**2 * (1 + 1 / COUNT) + SHIFT_STD**2) @ shares**2
    square = (np.square(far.loc["p3", ["d13C", "d15N"]].to_numpy(float) - (MEAN + SHIFT) @ shares) / variance).sum()
    assert found.consumers.loc["p3", "distance"] == pytest.approx(np.sqrt(square / 2), rel=1e-3)
    assert found.consumers.loc["p3", "p_value"] == pytest.approx(stats.chi2.sf(square, 2), rel=1e-2)
    assert "outside the mixing polygon: p3" in found.summary()


def test_what_is_printed(found):
    text = repr(found)
    assert text.startswith("Mixing of 3 sources by 3 consumers, tracers d13C, d15N")
    assert text.count("fish") == 2  # of the two groups
    assert "polygon" not in text
    assert text.endswith("status: OK")


def test_samples_of_sources_tell_means_deviations_and_numbers():
    rng = np.random.default_rng(2)
    names = np.repeat(NAMES, [3, 5, 4])
    samples = pandas.DataFrame(
        {"source": names, "d13C": rng.normal(size=12), "d15N": rng.normal(size=12), "year": 2000}
    )
    known = read(pandas, samples, "sources", CONSUMERS)
    assert known.names == NAMES
    assert known.tracers == ["d13C", "d15N"]
    fish = samples[names == "fish"]
    np.testing.assert_allclose(known.mean[:, 1], fish[["d13C", "d15N"]].mean())
    np.testing.assert_allclose(known.std[:, 1], fish[["d13C", "d15N"]].std(ddof=1))
    np.testing.assert_array_equal(known.samples, [3, 5, 4])
    same = read(pandas, SOURCES.set_index("Source"), "sources", CONSUMERS)
    np.testing.assert_array_equal(same.std, STD)


CONC = table(MEAN, STD, Concd13C=[0.4, 0.4, 0.5], Concd15N=[0.1, 0.1, 0.1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"consumers": CONSUMERS.to_numpy()}, "consumers is a ndarray; pass a pandas DataFrame"),
        ({"consumers": CONSUMERS.drop(columns="d15N")}, "consumers has no column 'd15N', a tracer of the sources"),
        ({"consumers": CONSUMERS.assign(d13C=[1.0, np.nan, 2.0])}, "consumers: d13C of 'p2' is nan"),
        ({"consumers": CONSUMERS[:0]}, "consumers has no rows"),
        ({"consumers": CONSUMERS.assign(site=["w", None, "e"])}, "consumers: site of 'p2' is missing"),
        ({"group": "pool"}, "group='pool' is no column of consumers"),
        ({"sources": SOURCES.drop(columns="SDd15N")}, "sources has a column Meand15N and no SDd15N"),
        ({"sources": pandas.concat([SOURCES, SOURCES])}, "sources has two rows of 'alga'"),
        ({"sources": SOURCES.assign(n=0)}, "sources has a n of 0; it must be at least 1"),
        ({"sources": SOURCES.assign(Meand13C=np.inf)}, "sources: Meand13C of 'alga' is inf"),
        ({"sources": SOURCES[["Source"]]}, "sources has no tracers"),
        ({"sources": SOURCES[["Source"]].assign(d13C=[1.0, 2, 3])}, "one sample of 'alga', which tells no standard"),
        ({"discrimination": FACTORS[:2]}, "discrimination lacks the source 'alga'"),
        ({"concentration": CONC}, "concentration differs between sources"),
        ({"concentration": SOURCES}, "concentration needs the columns"),
        ({"noise": 0.0}, "noise=0.0: pass a positive residual error"),
        ({"noise": {"d13C": 0.1}}, "noise has values for .'d13C'.; pass one for each of"),
        ({"prior": [1.0, 2.0]}, r"prior has shape \(2,\); pass one number, or one for each of"),
        ({"sources": table(MEAN, 0 * STD)}, "sources have no standard deviation; pass a positive"),
    ],
)
def test_bad_input(changes, message):
    arguments = {"consumers": CONSUMERS, "sources": SOURCES, "group": "site", **changes}
    with pytest.raises(ValueError, match=message):
        mixing(**arguments, method=METHOD)


def test_equal_concentrations_change_nothing(found):
    equal = CONC.assign(Concd13C=0.4)
    options = {"discrimination": FACTORS, "group": "site", "noise": [0.3, 0.3], "method": METHOD}
    again = mixing(CONSUMERS, SOURCES, concentration=equal, **options)
    pandas.testing.assert_frame_equal(again.table, found.table, atol=1e-5)


def test_without_pandas_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"mixing needs pandas; .*'balson_jax\[recipes\]'"):
        mixing(CONSUMERS, SOURCES)
