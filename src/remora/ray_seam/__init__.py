"""The one place that knows Ray.

``api`` is what users call. ``ray_port`` is the real body of the port, ``controller_actor`` runs the controller. In drivers and
workers ``hooks`` puts the layer between user code and Ray (every replaced attribute is replaced there), ``shim`` and ``proxy``
add tokens where work is submitted, ``travel`` takes the layer to workers, ``guard`` stands before what they start. These and
what they import are light, because every worker imports them; ``layer``, ``checks``, ``grouping`` and ``late``, which decide,
are imported with the first thing that a process submits. ``names``
lists every private name of Ray that is touched. May import: ``ray`` and everything below.
"""
