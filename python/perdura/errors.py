"""The exceptions of the package.

All of them are ``Error``, and each is also the built-in exception that Python uses for such a case.
A key that is not there is a plain ``KeyError``; a view in the way of a close is a ``BufferError``.
"""


class Error(Exception):
    """The base of all exceptions of this package."""


class OpenError(Error, OSError):
    """The directory cannot be opened. Nothing was changed."""


class InUseError(OpenError):
    """Another program has the directory open, or its last holder still flushes."""


class WrongKeyError(OpenError, PermissionError):
    """The image is encrypted by another key, or none was given; or it is not encrypted."""


class SettingError(Error, ValueError):
    """An option has a value that cannot work. Nothing was changed."""


class PromiseError(SettingError):
    """The budget cannot be flushed within the warning, or has no room on the SSD."""


class DeviceError(Error, OSError):
    """The SSD has failed or is full. What is in memory stays there; nothing was dropped."""


class ClosedError(Error, ValueError):
    """The store, region or heap was closed before."""


class FullError(Error, MemoryError):
    """The memory of the store or heap is used up. Nothing was changed."""


class TooLargeError(Error, ValueError):
    """A key, a value or a transaction is too large. Nothing was changed."""


class WrongTypeError(Error, TypeError):
    """Another program has written another type there: a Redis client a hash, for example."""


class BlockError(Error, LookupError):
    """A block is freed, or of another heap. Nothing was changed."""


class NestedError(Error, RuntimeError):
    """This thread is in a transaction of the heap, which must end first. Nothing was changed."""


class ConflictError(Error):
    """Another thread changed a key that a transaction had read. Nothing was changed."""


class ForkedError(Error, RuntimeError):
    """This process was forked from the one that opened the store, region or heap."""
