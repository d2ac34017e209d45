"""Why does it wait: one line for people, counted refusals for programs, and the smallest changes that would help.

Built from the screens of the same rules that decide, so a reason cannot differ from the decision. Reads only. May import:
``placing``, ``rules``, ``state``.
"""
