"""Placement groups inside virtual clusters: what they have of them, and that Ray tries them again when they lose a node.

May import: ``remora.controller`` modules beside this package, ``tokens`` and ``clusters``, ``remora.kernel``, ``remora.wire``.
"""
