"""Maps from points of the unit cube to draws on the simplex, with their log-density."""
