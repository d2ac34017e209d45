"""The patches to Ray and their undo, all of them, and how they travel to workers. Light, because every worker loads it."""
