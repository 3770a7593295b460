"""Exceptions that the project raises on purpose.

The command line exits with 2 for an InputError and with 1 for a RunError.
"""


class BscError(Exception):
    """Base class of all errors raised on purpose; the message is one sentence for the user."""


class InputError(BscError):
    """The input of the user is invalid; no work was done."""


class ConfigError(InputError):
    """A config has an unknown key or an invalid value; names the key, the value and a fix."""


class DataError(InputError):
    """A data file or its rows are invalid; names the file and, if known, the row and the field."""


class ColumnError(DataError):
    """A column is missing or is mapped to two roles."""


class FileFormatError(DataError):
    """A file does not have the expected format, is not UTF-8, or is empty."""


class PathError(InputError):
    """A path does not exist, or is outside the folders that this process may read."""


class ModelError(InputError):
    """An encoder cannot be found, or its files are not as expected."""


class RunNotFoundError(InputError):
    """The runs folder has no run of this id."""


class RunError(BscError):
    """A run failed or cannot be resumed."""


class TrainingError(RunError):
    """Training reached an invalid state, such as a loss that is not finite."""


class CheckpointError(RunError):
    """A checkpoint is damaged or was written by another run."""


class JobError(RunError):
    """The queue or a process of a run does not work as expected."""
