"""Ray's own tests with Remora attached: ``make raytests RAY_SOURCE=...``. Ray's files themselves are never part of this tree.

``plugin`` is loaded into pytest there and attaches; ``isolated.sh`` gives each run processes, network and /tmp/ray of its own;
``turns`` runs files and keeps what came of every test; ``verdicts`` says what fails attached only.
"""
