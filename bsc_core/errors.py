"""The exception tree: what the project raises on purpose, and who is to act on it.

BscError
+-- InputError            the user's input was refused; the command line exits with 2
|   +-- ConfigError       a field of a config: names the field, the value and the way out
|   +-- DataError         a file or its rows: names the file and, where known, the row and the field
|   |   +-- ColumnError   a column that is missing or mapped twice
|   |   +-- FileFormatError   not the format its name says, broken UTF-8, empty
|   +-- PathError         missing, or outside the folders this process may read
|   +-- ModelError        an encoder that cannot or may not be loaded
|   +-- RunNotFoundError  no run of that name
+-- RunError              a run failed or cannot go on; the command line exits with 1
    +-- TrainingError     the loop met a state it refuses, such as a loss that is not finite
    +-- CheckpointError   a checkpoint that is truncated or belongs to another run
    +-- JobError          the queue or a worker process
"""


class BscError(Exception):
    """Root of every error raised on purpose; its text is one clear sentence for the user."""


class InputError(BscError):
    """The input was refused before any work was done."""


class ConfigError(InputError):
    """A config field has an unknown name or a value that cannot work."""


class DataError(InputError):
    """A data file, or rows of it, cannot be used."""


class ColumnError(DataError):
    """A column is missing, or two roles were given to one column."""


class FileFormatError(DataError):
    """A file is not what its name says, is not UTF-8, or is empty."""


class PathError(InputError):
    """A path does not exist, or lies outside the folders this process may read."""


class ModelError(InputError):
    """An encoder cannot be found, or its files are not the ones expected."""


class RunNotFoundError(InputError):
    """There is no run of that name in the runs folder."""


class RunError(BscError):
    """A run failed, or cannot go on from where it is."""


class TrainingError(RunError):
    """Training met a state that it refuses, such as a loss that is not finite."""


class CheckpointError(RunError):
    """A checkpoint is truncated, or was written by another run."""


class JobError(RunError):
    """The queue or one of its processes does not answer as it must."""
