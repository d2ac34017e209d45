"""This machine as a Ray node: the labels it starts with, what its cloud and its Kubernetes say, and a local cluster of several
nodes.

Knows ``ray start`` as a command line and never imports Ray; what has to be asked of a running Ray is handed in. May import:
``remora.sim`` (nodes are written as in scenario files), ``remora.model``, ``remora.errors``.
"""
