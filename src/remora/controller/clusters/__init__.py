"""Virtual clusters that live: whose they are, what they have and use, how they grow, who may start in them.

May import: ``remora.controller`` modules beside this package and ``tokens``, ``remora.kernel``, ``remora.wire``,
``remora.port``.
"""
