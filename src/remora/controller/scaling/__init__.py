"""Machines: what waits makes the cluster grow, and what was promised is kept from being ended.

``waits`` is what waits, with patience; ``machines`` what may be started, was asked for, is coming or failed; ``keeper`` which
machines are held; ``scale`` is the step of a round that has the kernel plan. Only where there is an autoscaler.
May import: the other rooms.
"""
