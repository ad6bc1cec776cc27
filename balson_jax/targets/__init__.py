"""The log-density of a block of problems: what samplers see."""
