"""From weighted draws to estimates.

``weights`` forms weights, and ``moments`` sums them up; ``reservoir`` keeps draws; ``pareto`` judges the tail of the
weights; ``convergence`` judges chains; ``estimate`` is the result of a sampler, ``diagnostics`` its list of
diagnostics.
"""
