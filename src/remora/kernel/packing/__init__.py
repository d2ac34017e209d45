"""How many machines of which kind: bin packing in plain numbers, and nothing else.

``bins`` are the values, ``filling`` adds one machine after the other, ``portfolio`` tries several ways and keeps the best. The
work depends on how many *kinds* of demand there are, not on how many demands. Which machine may hold what is decided by the
rules, elsewhere, and comes in as bit sets. May import: nothing of the kernel.
"""
