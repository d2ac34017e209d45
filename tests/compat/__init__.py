"""Remora on every release of Ray and of Python that it names: ``make compat``, and the table in docs/limits.md."""
