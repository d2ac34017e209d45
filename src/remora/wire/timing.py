"""Every time that two processes must agree on, each derived from what it depends on.

A relation that has to hold is asserted below, so that nobody changes one number alone.
"""

from __future__ import annotations

# Fences: worker and controller

FENCE_SECONDS = 0.25
"""A worker trusts what it read for this long; a fence holds for certain this long after it was written. While work flows, every
node asks about as often, so this is what the cluster pays for how soon a taint holds on a full node."""

TOLD_SECONDS = 1.5 * FENCE_SECONDS
"""So long after a fence was written every worker has read it, or will before it starts anything."""

# Workers that wait: worker and controller

RENEW_SECONDS = 2.0
"""How often a worker that waits, and has lent its share meanwhile, says so; and how long the controller may keep a question
about admission before it says "ask again"."""

CROWDED_SECONDS = RENEW_SECONDS / 2
"""How long whoever was told ``LATER`` waits before it asks again: the controller had no thread left to keep its question."""

LOST_SECONDS = 3 * RENEW_SECONDS
"""A worker that was not heard of for this long is forgotten: it has ended, or its message was lost."""

BURIED_SECONDS = 10 * LOST_SECONDS
"""For this long nothing is believed that a worker says which was reported dead: it may have been on its way."""

# Names of virtual clusters: every process that submits, and controller

SHARES_SECONDS = 5.0
"""A process trusts for this long what it worked out about the share tokens of a virtual cluster."""

SPEC_SECONDS = 20.0
"""A process trusts for this long what it read about a virtual cluster by its id."""

COOL_SECONDS = 30.0
"""The id of a virtual cluster that has ended is given to no other sooner."""

# Classes: every process that submits, and controller

IDLE_SECONDS = 90.0
"""A class that nobody uses or mentions for this long is no longer offered."""

MENTION_SECONDS = IDLE_SECONDS / 3
"""A process that goes on using a class mentions it this often."""

# The way to the controller: every process, and controller

HANDLE_SECONDS = 2.0
"""A process looks the controller up again this often: it may have been shut down and started anew."""

AWAY_SECONDS = 30.0
"""A controller that is being restarted is waited for so long; then ``ControllerAwayError``. Starting takes about two."""

HEARD_SECONDS = 1.0
"""A size of work that is new in a virtual cluster is submitted once the controller has heard of it, or after so long: while the
controller is away it takes no share from anybody."""

# Leases: whoever creates, and controller

CREATE_SECONDS = 5.0
"""From the answer to ``Place`` until the actor is known to GCS by its slot, at the very most while its caller lives."""

CLAIM_SECONDS = 2 * CREATE_SECONDS
"""A slot that nobody has claimed by then is taken back: the caller died, or the actor was there already."""

PREDECESSOR_SECONDS = 1.5 * CLAIM_SECONDS
"""So long after its start a controller leaves slots alone that one before it gave: their work may still be on its way."""

# Placement groups: whoever creates, and controller

GROUP_SEEN_SECONDS = 5.0
"""A client waits at most this long until the tokens of a group can be seen where GCS looks for them."""

OFFER_SECONDS = 0.6
"""The controller tries for so long to make room for a group that the kernel has found room for: what stands in its place may
just be being lowered or held."""

GROUP_RESERVED_SECONDS = 1.0
"""A client gives GCS this long to reserve a group in a virtual cluster; then it removes it and tries again. GCS itself tries
again after a tenth of a second, and then more and more seldom."""

GROUP_CREATED_SECONDS = 15.0
"""The share that was offered for a group and never confirmed is taken back: whoever asked for it has died. A group of that
name which appears in GCS after all is found there. The name of a share that was given back rests for as long."""

GROUP_RETRY_SECONDS = 0.25
"""Whether a group that waits fits now is asked this often."""

GROUP_PATIENT_SECONDS = 1.0
"""One that waits for long is asked about no more often than this."""

SIGNAL_SECONDS = 10.0
"""So long after a waiting group was created or removed, whoever found it waiting just before can still be told."""

# Reports of the cluster: raylets, GCS and controller

KNOWN_SECONDS = 0.3
"""So long after a token was written every raylet knows of it: they tell each other ten times a second."""

REPORTED_SECONDS = 0.7
"""So long after a raylet answered, a report may still be older than the answer."""

assert TOLD_SECONDS > FENCE_SECONDS
assert RENEW_SECONDS + max(RENEW_SECONDS, CROWDED_SECONDS) <= LOST_SECONDS  # one may be lost, and one may be kept
assert BURIED_SECONDS > LOST_SECONDS  # whoever is reported dead is forgotten before it is believed again
assert SHARES_SECONDS + SPEC_SECONDS < COOL_SECONDS  # what was worked out from what was read is of the same cluster
assert 2 * MENTION_SECONDS < IDLE_SECONDS  # one mention may be lost
assert HANDLE_SECONDS < AWAY_SECONDS
assert CREATE_SECONDS < CLAIM_SECONDS < PREDECESSOR_SECONDS
assert 2 * (GROUP_SEEN_SECONDS + GROUP_RESERVED_SECONDS) < GROUP_CREATED_SECONDS
assert GROUP_RETRY_SECONDS < GROUP_PATIENT_SECONDS < SIGNAL_SECONDS
assert KNOWN_SECONDS < REPORTED_SECONDS
assert OFFER_SECONDS + GROUP_SEEN_SECONDS + GROUP_RESERVED_SECONDS < GROUP_CREATED_SECONDS
