"""The numbers that the paper reports, for comparison with ours."""

from __future__ import annotations

METHODS = ("LASSO", "IP", "Bayesian LASSO", "RS", "IS", "RSIRS", "ISIRS")
REFERENCES = METHODS[:3]
SAMPLERS = METHODS[3:]

MSE = {
    "LASSO": 0.0209,
    "IP": 0.0257,
    "Bayesian LASSO": 0.0370,
    "RS": 0.0143,
    "IS": 0.0159,
    "RSIRS": 0.0116,
    "ISIRS": 0.0158,
}
SPARSITY = {
    "LASSO": 0.6660,
    "IP": 0.5353,
    "Bayesian LASSO": 0.3833,
    "RS": 0.6751,
    "IS": 0.6785,
    "RSIRS": 0.8124,
    "ISIRS": 0.8675,
}

# p-values of paired t-tests of each sampler against each reference method, in the order of REFERENCES.
P_MSE = {
    "RS": (4.00e-02, 4.86e-04, 1.92e-06),
    "IS": (7.55e-02, 6.13e-04, 4.34e-07),
    "RSIRS": (2.43e-03, 7.27e-06, 1.52e-08),
    "ISIRS": (3.74e-01, 8.47e-02, 3.93e-04),
}
P_SPARSITY = {
    "RS": (6.18e-01, 4.44e-14, 1.85e-19),
    "IS": (5.15e-01, 1.66e-13, 4.75e-18),
    "RSIRS": (4.12e-24, 4.33e-48, 4.35e-38),
    "ISIRS": (5.73e-37, 3.83e-58, 1.61e-44),
}
TRUE_SPARSITY = 0.9200
