"""The narrow waist: what Remora needs of a cluster (``contract``), and one in memory (``memory_port``) that behaves like Ray.

Nothing here knows Ray. May import: the standard library.
"""
