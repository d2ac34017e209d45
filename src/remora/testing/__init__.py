"""For tests, also users' own: builders, and a slow reference of what the kernel decides.

May import: ``remora.sim`` and everything below it.
"""
