"""Experiments: the paper's, and simulated scenes."""
