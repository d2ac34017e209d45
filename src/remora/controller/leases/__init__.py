"""Leases: one actor or task each, on the one node that the kernel chose for it.

May import: ``remora.controller`` modules beside this package and ``tokens``, ``remora.kernel``, ``remora.wire``,
``remora.port``.
"""
