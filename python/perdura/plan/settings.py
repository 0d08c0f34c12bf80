"""Settings of an analysis: windows, shares, and the size of volumes."""

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple, Union

from perdura import _native

#: The windows and shares of the Viyojit paper.
WINDOWS = ("1m", "10m", "1h")
SHARES = (90.0, 95.0, 99.0)
#: The share by which skew is judged; it is always among the shares.
JUDGED = 99.0


@dataclass(frozen=True)
class Settings:
    windows_ns: List[int]
    shares: List[float]
    volume_bytes: Optional[int]

    @classmethod
    def of(
        cls,
        windows: Union[str, Sequence[str]],
        shares: Sequence[float],
        volume_size: Union[str, int, None],
    ) -> "Settings":
        """Settings from words as the command line takes them; a wrong one is a ``ValueError``."""
        if isinstance(windows, str):
            windows = windows.split(",")
        windows_ns = [_named("window", str(text), _native.parse_time) for text in windows]
        size = volume_size
        if isinstance(size, str):
            size = _named("volume_size", size, _native.parse_size)
        elif size is not None and not (isinstance(size, int) and 0 <= size < 2**64):
            raise ValueError(f"volume_size {size}: expected bytes, or a size such as '1TB'")
        settings = cls(windows_ns, [*(float(share) for share in shares), JUDGED], size)
        # Refuses settings without a meaning.
        _native.Analysis(settings.windows_ns, settings.shares)
        return settings

    def report(
        self,
        name: str,
        files: List[Tuple[str, int, List[str]]],
        volumes: List[Tuple[str, bytes]],
        whole: bytes,
    ) -> str:
        """The JSON of ``perdura plan trace`` for parts that were counted."""
        return _native.report(
            name, files, volumes, whole, self.windows_ns, self.shares, self.volume_bytes
        )


def _named(what, text, parse):
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{what} {text}: {error}") from error
