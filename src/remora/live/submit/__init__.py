"""From the options of a call to what the core worker is told: classes, leases, groups. Loaded with the first submission."""
