"""The one place that knows Ray, in rooms.

``api`` is what users call, ``program`` what ``remora run`` starts, and ``ray_init`` lets ``ray.init`` take a virtual
cluster. ``attach`` puts the layer between user code and Ray: every replaced attribute is replaced in ``attach.install``
(but ``ray.init`` in ``ray_init``, which attaching has no part in), and ``attach.travel`` takes the layer to workers.
``submit`` turns the options of a call into tokens, ``worker`` stands before what starts in a worker, ``clusters`` knows
which virtual cluster a process is in, ``inspect`` shows a process its cluster. ``link`` is the one way to the controller
and ``perform`` performs the steps of a conversation with it. ``host`` runs the controller, ``adapter`` is the real body of
its port. Whatever every worker loads is light: ``submit`` is imported with the first thing that a process submits.
``names`` lists every private name of Ray that is touched. May import: ``ray`` and everything below.
"""
