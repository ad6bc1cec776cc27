"""Experiments: the paper's."""
