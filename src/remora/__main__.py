"""``python -m remora``: the same command where its script is not on the path, as in the entrypoint of a job."""

from remora.cli.main import run

run()
