"""Every exception geotrain raises on purpose.

    GeotrainError            exit code 1
    ├── InputError           exit code 2: a file, field or flag is wrong; one sentence says what and what would do
    │   ├── ScheduleError    an order of actions that cannot be played
    │   └── DoesNotFitError  a plan that needs more memory or GPUs than there are
    └── RunError             exit code 1: the input was fine, the run failed
        └── TransportError   a channel failed; its kinds are in transport/errors.py

`assert` is for our own bugs, never for a user's mistake.
"""


class GeotrainError(Exception):
    """Base of all errors that end a command with a sentence instead of a stack trace."""

    exit_code = 1


class InputError(GeotrainError):
    """What the user gave cannot be used."""

    exit_code = 2


class ScheduleError(InputError):
    """A schedule breaks a rule of the pipeline."""


class DoesNotFitError(InputError):
    """The plan needs more than the cluster has."""


class RunError(GeotrainError):
    """Something failed while running."""
