"""Hypothesis profiles: ``ci`` (default) is repeatable and short, ``dev`` looks further, ``soak`` is for a night.

Choose one with the environment variable HYPOTHESIS_PROFILE.
"""

import os

from hypothesis import settings

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("dev", deadline=None, max_examples=200)
settings.register_profile("soak", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
