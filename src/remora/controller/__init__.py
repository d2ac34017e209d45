"""The controller: observe the cluster, decide with the kernel, steer with tokens, remember.

Level-triggered: ``Controller.round`` computes which tokens every node should offer, compares with what the nodes report and
writes the difference. Whatever was lost (a message, the controller, a node) the next round repairs. It runs inside a Ray
actor (``ray_seam.controller_actor``) or over the in-memory port in tests. May import: ``remora.kernel``, ``remora.wire``,
``remora.model``, ``remora.seam``.
"""
