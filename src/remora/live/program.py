"""In a program that ``remora run`` started: it is attached when it connects, though its code knows nothing of Remora.

``ray.init``, called by hand or by itself, asks a hook for changes of the runtime environment. Ours changes nothing, and leaves
a function among those that Ray calls once it is connected: before the program can submit anything. Workers are not concerned:
they have none of these variables and get the layer with the functions.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import ray
from ray._private import worker

from remora.errors import InvalidInputError, RemoraError
from remora.live import api
from remora.live.clusters import job_cluster
from remora.wire.run_env import RunOptions

_OFF = ("0", "false")
_INTERRUPTED = 128 + signal.SIGINT


def on_init(runtime_env: Any) -> Any:
    """What ``ray.init`` calls before it connects. Whatever else it would have called is called from here."""
    from ray._common.utils import load_class
    from ray._private.runtime_env import uv_runtime_env_hook

    options = job_cluster.run_options() or RunOptions()
    job_cluster.begin_with(options)
    if _attach not in worker._post_init_hooks:
        worker._post_init_hooks.append(_attach)
    if not ray.is_initialized():
        job_cluster.set_variables(options.outside())  # not for the workers of a Ray that is started here
    if (options.uv or "1").lower() not in _OFF and uv_runtime_env_hook._get_uv_run_cmdline():
        return uv_runtime_env_hook.hook(runtime_env)
    return load_class(options.hook)(runtime_env) if options.hook else runtime_env


def _attach() -> None:
    """What ``ray.init`` calls when it is connected."""
    if job_cluster.is_by_hand():
        return
    try:
        api.init()
    except BaseException as error:
        ray.shutdown()  # or the program could go on outside of its virtual cluster
        if isinstance(error, RemoraError):
            sys.stderr.write(f"remora: {' '.join(str(error).split())}\n")
            raise SystemExit(2 if isinstance(error, InvalidInputError) else 1) from None
        if isinstance(error, KeyboardInterrupt):
            sys.stderr.write("remora: interrupted before the program was attached; it waits in no queue any more\n")
            raise SystemExit(_INTERRUPTED) from None
        raise
