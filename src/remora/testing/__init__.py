"""Builders for tests, also for users' own: a cluster or a node in one readable line. May import: ``remora.sim`` and all below."""
