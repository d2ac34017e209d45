"""Verbs: decide where work may run, and say why it waits.

Vocabulary: a node has a *number*; a *node set* is a Python int with one bit a node. A *screen* is one hard constraint
as a node set with the refusal that belongs to it; a *rule* makes screens. A *host* is where resources are taken from: a
physical node, or a virtual node of a virtual cluster. A *spot* is a decision: this node, that host.

Pure: no I/O, no clock, no randomness but the seed it is given, no Ray. The state is changed only through ``Cluster``
and ``Scheduler``. May import: the standard library, ``remora.model``, ``remora.errors``.
"""
