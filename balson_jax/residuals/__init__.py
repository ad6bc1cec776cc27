"""What residuals tell of the model: their covariance, and how much too narrow error bars are. NumPy alone."""
