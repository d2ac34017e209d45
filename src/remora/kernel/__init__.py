"""Verbs: decide where work may run, and say why it waits.

    cycle        the scheduler: what waits, and the steps that place it whenever something changed (with ``waiting_lines``)
    explaining   why does it wait
    sharing      how do shares follow the work on a live cluster
    placing      where does it go
    rules        one file a rule: what it refuses, what it wishes for, its words, its remedy
    state        what a decision reads

Each imports only what is below it; ``explaining`` and ``sharing`` do not know each other.

Vocabulary: a node has a *number*; a *node set* is a Python int with one bit a node. A *screen* is one hard constraint
as a node set with the refusal that belongs to it; a *rule* makes screens. A *host* is where resources are taken from: a
physical node, or a virtual node of a virtual cluster. A placement is *assumed* when it is decided and *confirmed* when a report
shows it. A virtual cluster *reserves* its minimum, grows by *borrowing*, and what it borrowed can be *reclaimed*.

Pure: no I/O, no clock, no randomness but the seed it is given, no Ray. The state is changed only through ``Cluster``
and ``Scheduler``. May import: the standard library, ``remora.model``, ``remora.errors``.
"""
