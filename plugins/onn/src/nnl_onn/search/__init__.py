"""Search for the operator sets of a network's layers."""

from nnl_onn.search.log import TrialLog
from nnl_onn.search.plasticity import Change, elite, monitor, plasticity, rank
from nnl_onn.search.strategies import Found, Trials, exhaustive_search, greedy_search

__all__ = [
    "Change",
    "Found",
    "TrialLog",
    "Trials",
    "elite",
    "exhaustive_search",
    "greedy_search",
    "monitor",
    "plasticity",
    "rank",
]
