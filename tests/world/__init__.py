"""A whole cluster in virtual time, played from one seed, that tries to break Remora.

In it run the real controller and the real client protocol. Played are raylets (``raylet``), GCS (``gcs``, ``groups``,
``port``), drivers and workers (``processes``, ``owning``, ``bodies``, ``clients``, ``submitting``), and who hosts the
controller (``host``, ``brain``).

A *life* is a *script* (``script``, ``faults``, ``writing``): timed actions and faults, written from a seed before anything
happens, so that one can be removed and the others stay as they are. Most are about one of the ``situations`` in which features
meet. ``checks`` holds every event to the rules, ``quiet`` (with ``sums`` and ``owed``) looks when all is over,
``shrink`` makes a story short, and ``old_rules`` puts known bugs back. ``python -m tests.world --help`` says how to play.
"""
