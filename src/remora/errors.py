"""Every error that Remora raises on purpose.

    RemoraError
    ├── InvalidInputError (also a ValueError)   what the caller wrote cannot be right
    │   ├── InvalidLabelError                   label keys and values
    │   ├── InvalidSelectorError                label selectors, expressions, the query string
    │   ├── InvalidTaintError                   taints and tolerations
    │   ├── InvalidResourceError                resource names and amounts
    │   ├── InvalidStrategyError                scheduling strategies, affinity, fallbacks
    │   ├── InvalidVirtualClusterError          virtual cluster specs, and ones that can never fit
    │   ├── InvalidScenarioError                scenario files of the simulator
    │   ├── InvalidNodeTypeError                node types that an autoscaler can start
    │   ├── UnknownNameError (also LookupError) a node, workload or cluster that is not there
    │   └── ConflictError                       what is there now contradicts what was asked
    ├── IncompatibleRayError                    this Ray lacks something that Remora needs
    ├── VirtualClusterTimeoutError (also TimeoutError)  a minimum was not reserved in time
    ├── ControllerError                         the controller failed over a call: a bug in Remora, or another version
    │   └── ControllerAwayError                 there is no controller, or it does not come back
    ├── UnreadableEntryError                    something in the cluster's store that this Remora cannot read
    └── InvariantError (also AssertionError)    a bug in Remora: the state contradicts itself

A message of an InvalidInputError names the value, the rule it breaks and an example of what is right.
"""

from __future__ import annotations


class RemoraError(Exception):
    """The root of everything that Remora raises on purpose."""


class InvalidInputError(RemoraError, ValueError):
    """What the caller wrote cannot be right; nothing was changed."""


class InvalidLabelError(InvalidInputError):
    """A label key or value breaks the label syntax."""


class InvalidSelectorError(InvalidInputError):
    """A label selector or one of its expressions is malformed or ambiguous."""


class InvalidTaintError(InvalidInputError):
    """A taint or a toleration is malformed."""


class InvalidResourceError(InvalidInputError):
    """A resource name or amount is malformed."""


class InvalidStrategyError(InvalidInputError):
    """A scheduling strategy, affinity or fallback is malformed."""


class InvalidVirtualClusterError(InvalidInputError):
    """A virtual cluster spec is malformed, or can never fit its parent."""


class InvalidScenarioError(InvalidInputError):
    """A scenario file of the simulator is malformed."""


class InvalidNodeTypeError(InvalidInputError):
    """The description of a node type, or a file of them, is malformed."""


class UnknownNameError(InvalidInputError, LookupError):
    """A node, workload, group or virtual cluster of that name is not there."""


class ConflictError(InvalidInputError):
    """What is there now contradicts what was asked: look again, and ask for what fits."""


class IncompatibleRayError(RemoraError):
    """This Ray lacks a name that Remora needs; nothing was touched."""


class VirtualClusterTimeoutError(RemoraError, TimeoutError):
    """The minimum of a virtual cluster was not reserved in time; its place in the queue is given back."""


class ControllerError(RemoraError):
    """The controller failed over a call; what it says is in the message, and more in ``remora status``."""


class ControllerAwayError(ControllerError):
    """There is no controller in this cluster, or it does not come back."""


class UnreadableEntryError(RemoraError):
    """An entry in the cluster's key-value store is damaged, or of a version that this Remora does not know."""


class InvariantError(RemoraError, AssertionError):
    """The state contradicts itself: a bug in Remora, found by ``validate()``."""
