"""What people and clients are shown, in plain values: nodes, what waits and why, the tree of virtual clusters. Reads only."""
