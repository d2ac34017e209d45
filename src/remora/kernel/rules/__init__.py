"""The rules: one file each, which owns what it refuses, what it wishes for, its words and its remedy.

A rule turns a query into *screens*: node sets that pass or are refused. Everything else (deciding, explaining, naming
the smallest change) is done once, over the screens of all rules. A new rule is one new file and one line in a list below.
"""

from __future__ import annotations

from remora.kernel.rules.affinity import AffinityRule
from remora.kernel.rules.base import Change, Query, Rule, Screen
from remora.kernel.rules.capacity import CapacityRule
from remora.kernel.rules.evenness import EvennessRule
from remora.kernel.rules.node_labels import NodeLabelRule
from remora.kernel.rules.pinning import PinRule
from remora.kernel.rules.symmetry import SymmetryRule
from remora.kernel.rules.tolerance import TaintRule

STATIC: tuple[Rule, ...] = (PinRule(), NodeLabelRule(), TaintRule())
"""Read only ``query.choice``: their answer is cached by node class until a node changes."""

DYNAMIC: tuple[Rule, ...] = (AffinityRule(), SymmetryRule(), EvennessRule(STATIC))
"""Depend on what is placed."""

CAPACITY = CapacityRule()

ALL: tuple[Rule, ...] = (*STATIC, *DYNAMIC, CAPACITY)
"""In the order in which a refused node is counted."""

__all__ = ["ALL", "CAPACITY", "DYNAMIC", "STATIC", "Change", "Query", "Rule", "Screen"]
