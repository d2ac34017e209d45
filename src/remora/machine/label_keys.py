"""The labels that every node should have, by their names, and what their values are called."""

ACCELERATOR_TYPE = "ray.io/accelerator-type"
MARKET_TYPE = "ray.io/market-type"
NODE_GROUP = "ray.io/node-group"
ZONE = "ray.io/availability-zone"
DEFAULT_KEYS = (ACCELERATOR_TYPE, MARKET_TYPE, NODE_GROUP, ZONE)

SPOT, ON_DEMAND = "spot", "on-demand"
