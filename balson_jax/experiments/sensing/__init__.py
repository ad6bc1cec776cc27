"""Compressive sensing: sparse shares from fewer rows than components, beside LASSO and least squares."""
