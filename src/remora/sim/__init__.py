"""The dry-run cluster: the kernel that steers a live Ray, with a virtual clock in its place.

``SimCluster`` is for questions ("would this fit, and if not, why?"); scenarios replay a day in a second. May import:
``remora.kernel``, ``remora.model``, ``remora.errors``; matplotlib in ``plot`` alone.
"""

from remora.sim.sim_cluster import SimCluster

__all__ = ["SimCluster"]
