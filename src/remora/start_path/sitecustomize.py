"""Where ``remora run`` starts a program, Python imports this first: then ``ray.init(virtual_cluster=...)`` works in it, though
its code knows nothing of Remora. The ``sitecustomize`` that would have been imported instead is imported from here.

It is found by the path that ``remora run`` sets, in whatever Python the program starts: it must work, or do nothing, in all.
"""

import contextlib
import os
import runpy
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes its time, and every process pays


def _go_on() -> None:
    """What stands after us on the path."""
    for folder in sys.path:
        path = os.path.join(folder or ".", "sitecustomize.py")  # noqa: PTH118
        if os.path.abspath(folder or ".") != _HERE and os.path.isfile(path):  # noqa: PTH100, PTH113
            runpy.run_path(path, run_name="sitecustomize")
            return


_go_on()
if os.environ.get("REMORA_RUN"):
    with contextlib.suppress(Exception):  # another Python, perhaps an older one, where we are not installed
        import remora  # noqa: F401 - which watches for Ray
