"""Where does it go: one piece of work (``placement``), many at once (``gang``), a virtual cluster (``reserving``).

``inside`` decides within a virtual cluster, ``class_nodes`` says where a class is offered, ``what_if`` and ``group_fit`` ask
the same questions of an empty copy: could it ever fit? Decisions return hosts; only ``reserving`` changes the state.
May import: ``rules``, ``state``.
"""
