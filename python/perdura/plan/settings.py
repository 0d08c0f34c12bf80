"""Settings of an analysis: windows, shares, and the size of volumes."""

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple, Union

from perdura import _native

#: The lengths of the windows in the Viyojit paper.
WINDOWS = ("1m", "10m", "1h")
#: The shares of all page writes in the Viyojit paper, in percent.
SHARES = (90.0, 95.0, 99.0)
#: The share, in percent, by which skew is judged. It is always among the shares.
JUDGED = 99.0


@dataclass(frozen=True)
class Settings:
    """The settings of an analysis, in plain units."""

    #: The lengths of the windows in nanoseconds.
    windows_ns: List[int]
    #: The shares of all page writes in percent.
    shares: List[float]
    #: The size of each volume in bytes; ``None`` takes the pages that the trace touches.
    volume_bytes: Optional[int]

    @classmethod
    def of(
        cls,
        windows: Union[str, Sequence[str]],
        shares: Sequence[float],
        volume_size: Union[str, int, None],
    ) -> "Settings":
        """Settings from text as the command line takes it. A ``ValueError`` names a wrong one."""
        if isinstance(windows, str):
            windows = windows.split(",")
        windows_ns = [_named("window", str(text), _native.parse_time) for text in windows]
        size = volume_size
        if isinstance(size, str):
            size = _named("volume_size", size, _native.parse_size)
        elif size is not None and not (isinstance(size, int) and 0 <= size < 2**64):
            raise ValueError(f"volume_size {size}: expected bytes, or a size such as '1TB'")
        settings = cls(windows_ns, [*(float(share) for share in shares), JUDGED], size)
        # Beginning an analysis refuses windows and shares that cannot be counted.
        _native.Analysis(settings.windows_ns, settings.shares)
        return settings

    def report(
        self,
        name: str,
        files: List[Tuple[str, int, List[str]]],
        volumes: List[Tuple[str, bytes]],
        whole: bytes,
    ) -> str:
        """The JSON text of ``perdura plan trace`` for one trace, from parts that were counted.

        ``files`` are (path, number of bad records, examples of them), ``volumes`` are (name, part),
        and ``whole`` is the part of all volumes.
        """
        return _native.report(
            name, files, volumes, whole, self.windows_ns, self.shares, self.volume_bytes
        )


def _named(what, text, parse):
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{what} {text}: {error}") from error
