"""From weighted draws to estimates: running moments, kept draws, Pareto k."""
