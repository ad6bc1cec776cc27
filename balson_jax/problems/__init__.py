"""What is fitted: data, constraint, noise and prior, checked and reduced. No randomness.

``linear`` and ``model`` make problems, ``uncertain`` those whose design has errors and ``nuisance`` those with
unconstrained columns; ``constraints`` and ``noise`` are the classes to extend; ``rows`` knows weights,
gaps and covariances; ``reduction`` turns N rows into K; ``batching`` handles leading axes.
"""
