"""The narrow waist: what Remora needs of a cluster (``port``), and a body of it in memory that behaves like Ray.

Nothing here knows Ray. May import: the standard library.
"""
