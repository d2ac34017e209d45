"""What clients and the controller say to each other, step by step: placing, admission, lending, groups, virtual clusters.

Each protocol is a generator that yields *steps* (``steps``) and is sent what came of them. It decides what to say, in which
order, and what to do about each answer; whoever performs the steps decides nothing: ``live.perform`` on a live Ray, the
world in the tests, where any process may die between any two of them. Nothing here knows Ray, a clock or a thread. Workers
import this when they start, so it is light. May import: ``remora.wire``, ``remora.errors``.
"""
