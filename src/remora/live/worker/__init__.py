"""In front of what starts in a worker: fences, admission, lending while it waits. Light, because every worker loads it."""
