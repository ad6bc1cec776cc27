"""Benchmarks against other libraries, as ratios measured in one run. See ``python -m benchmarks --help``."""
