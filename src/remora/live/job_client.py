"""Ray's own jobs, over HTTP: submitted, looked at and stopped through its client, with its errors as ours."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ray.dashboard.modules.job import sdk
from ray.job_submission import JobStatus, JobSubmissionClient

from remora.errors import InvalidInputError, RemoraError, UnknownNameError
from remora.live import names
from remora.live.adapter.local_nodes import follow_auth
from remora.machine.addresses import Target, check_address, reach

ENDED = (JobStatus.SUCCEEDED.value, JobStatus.FAILED.value, JobStatus.STOPPED.value)

_POLL_SECONDS = 0.5
_SHOWN = (
    "submission_id",
    "job_id",
    "type",
    "entrypoint",
    "message",
    "error_type",
    "start_time",
    "end_time",
    "driver_exit_code",
)


class Jobs:
    """``target``: the server that was asked for, in the end as Ray has found it."""

    def __init__(self, target: Target, headers: Mapping[str, str] | None = None, verify: bool | str = True) -> None:
        if importlib.util.find_spec("aiohttp") is None:
            raise RemoraError("Ray's job server and its client need more of Ray: pip install 'ray[default]'")
        address = target.address
        os.environ["RAY_API_SERVER_ADDRESS"] = address  # the argument itself would lose against RAY_ADDRESS
        if "://" not in address:
            check_address(address)
            reach(address)
        follow_auth(address)
        names.probe(names.JOBS)
        sdk.logger.setLevel(logging.WARNING)
        with _errors(address):
            self._client = JobSubmissionClient(address, headers=dict(headers) if headers else None, verify=verify)
        self.target = replace(target, address=self._client.get_address())

    def submit(self, entrypoint: str, **options: Any) -> str:
        with self._errors():
            submitted: str = self._client.submit_job(entrypoint=entrypoint, **options)
        return submitted

    def info(self, job_id: str) -> dict[str, Any]:
        with self._errors(job_id):
            return _plain(self._client.get_job_info(job_id))

    def all(self) -> list[dict[str, Any]]:
        with self._errors():
            return [_plain(info) for info in self._client.list_jobs()]

    def logs(self, job_id: str) -> str:
        with self._errors(job_id):
            written: str = self._client.get_job_logs(job_id)
        return written

    def follow(self, job_id: str, write: Callable[[str], None]) -> dict[str, Any]:
        """Hand on what the job writes, until it has ended."""

        async def tail() -> None:
            async for lines in self._client.tail_job_logs(job_id):
                write(lines)

        self.info(job_id)  # it is there
        with self._errors(job_id):
            asyncio.run(tail())
        return self.ended(job_id)

    def stop(self, job_id: str) -> bool:
        with self._errors(job_id):
            stopped: bool = self._client.stop_job(job_id)
        return stopped

    def ended(self, job_id: str) -> dict[str, Any]:
        """Its last word, once it has."""
        while (info := self.info(job_id))["status"] not in ENDED:
            time.sleep(_POLL_SECONDS)
        return info

    @contextlib.contextmanager
    def _errors(self, job_id: str = "") -> Iterator[None]:
        address = self._client.get_address()
        with _errors(address):
            try:
                yield
            except RuntimeError:
                if job_id and job_id not in self._known():
                    raise UnknownNameError(f"there is no job {job_id!r} {_where(address)}: see 'remora job list'") from None
                raise

    def _known(self) -> set[str | None]:
        return {known for info in self._client.list_jobs() for known in (info.submission_id, info.job_id)}


def _plain(info: Any) -> dict[str, Any]:
    more = {"status": info.status.value, "metadata": info.metadata or {}, "runtime_env": info.runtime_env or {}}
    return {**{name: getattr(info, name) for name in _SHOWN}, **more, "type": info.type.value}


@contextlib.contextmanager
def _errors(address: str | None) -> Iterator[None]:
    try:
        yield
    except RemoraError:
        raise
    except ConnectionError:
        raise InvalidInputError(
            f"no job server answers {_where(address)}: give --address, for example http://10.0.0.1:8265, or start Ray with its "
            "dashboard"
        ) from None
    except RuntimeError as error:
        raise RemoraError(_said(str(error))) from None
    except ValueError as error:
        raise InvalidInputError(str(error)) from None


def _said(text: str) -> str:
    """Return what the server says, without the traceback that it sends along: its last line is what went wrong."""
    before, trace, lines = text.partition("Traceback")
    if not trace:
        return text
    last = next((line for line in reversed(lines.strip().splitlines()) if line.strip(" .")), "")
    return f"{before.strip()} {last.strip().removesuffix('.')}"


def _where(address: str | None) -> str:
    return f"at {address}" if address else "here"
