"""Checks of the model by residuals: their covariance, and how much too narrow error bars are. NumPy alone."""
