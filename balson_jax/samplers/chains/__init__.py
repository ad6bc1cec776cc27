"""Markov chains on the simplex: how walkers start, move and are judged."""
