"""The controller: observe the cluster, decide with the kernel, steer with tokens, remember.

``controller`` is a state machine: events in, effects out. ``recovery`` makes one of what is remembered, ``commands`` are what
clients may ask, ``engine`` runs one: it performs effects, outside of any lock, and feeds what came of them back. It runs inside
a Ray actor or over the in-memory port in tests. May import: ``remora.kernel``, ``remora.wire``, ``remora.model``,
``remora.port``.
"""
