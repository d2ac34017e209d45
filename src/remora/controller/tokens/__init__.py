"""What stands on the nodes and who says so: classes in use, tokens asked for and answered, holds, fences.

May import: ``remora.controller`` modules beside this package, ``remora.kernel``, ``remora.wire``, ``remora.port``.
"""
