"""The result of a fit: moments, intervals, predictions, the printed table."""
