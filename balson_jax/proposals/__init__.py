"""Proposals: maps from points of the unit cube to draws on the simplex, with the log-density of the draws."""
