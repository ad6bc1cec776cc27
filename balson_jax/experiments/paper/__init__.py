"""The paper's experiment: fitting a polynomial with few terms."""
