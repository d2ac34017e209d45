"""How shares follow the work on a live cluster, where nobody tells of single tasks.

``usage`` takes over what reports say is in use, ``growth`` makes room for what waits, ``reclaim`` says who has to use less so
that a minimum can be reserved. May import: ``placing``, ``state``.
"""
