"""Which machines to start, for whom, and which to keep though they look idle.

``demands`` is what waits, ``planning`` tries it out on a copy of the cluster with machines added (``whole_planning``,
``work_planning``), ``plans`` is the answer: numbers by type, and for everything that waits the machines that are for it or why
none would help (``why_none``). ``keeping`` is the other half. The rules are those that place work: a machine that is not there
is an empty node of its type, and the ordinary functions are asked about it. May import: all other rooms.
"""
