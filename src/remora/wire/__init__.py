"""What client and controller must agree on, and nothing else: token names, classes as bytes, options as tokens.

May import: ``remora.model``, ``remora.errors``. Knows neither Ray nor the kernel.
"""
