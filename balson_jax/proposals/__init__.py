"""Maps from points of the unit cube to draws on the simplex, with their log-density."""

from .base import Proposal
from .dirichlet import DirichletProposal
from .mixture import DefensiveProposal, DividedProposal

__all__ = ["DefensiveProposal", "DirichletProposal", "DividedProposal", "Proposal"]
