"""The errors a user meets. Each message is one line: what is wrong, where, and what to do."""


class AmkError(RuntimeError):
    """The work failed; the command line prints the message and exits with 1."""


class ImportRefused(AmkError):
    """The model holds something that cannot be imported exactly."""


class ModelFileError(AmkError):
    """A model file is missing, damaged, or does not fit the program."""


class ToolchainError(AmkError):
    """A compiler is missing or failed."""
