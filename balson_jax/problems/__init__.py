"""What is fitted: data, constraint, noise and prior, checked and reduced. No randomness."""
