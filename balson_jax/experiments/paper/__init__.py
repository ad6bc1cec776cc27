"""The paper's experiment: fitting a sparse polynomial."""
