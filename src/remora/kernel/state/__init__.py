"""What a decision reads: nodes, what is placed on them, the tree of virtual clusters with its shares, and the indexes.

``Cluster`` is all of it in one, and the only way to change it; ``shares`` is the arithmetic over the tree, written into a
journal so that a trial can be undone; ``validate`` recounts everything. Nothing here decides. May import: ``remora.model``,
``remora.errors``.
"""
