"""The second process that keeps the memory when a program is killed.

It is this interpreter, which runs this file as a script, and nothing of the program. It writes
nothing until it must.
"""

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from typing import List, Tuple


def command() -> Tuple[str, List[str]]:
    """The program that is started as a holder, and its first arguments."""
    from perdura import _native

    if not sys.executable:
        from perdura.errors import SettingError

        raise SettingError(
            "holder: Python does not know its own program here: name the program `perdura` by "
            'holder="/path/of/perdura", or do without a holder by holder=False'
        )
    # An isolated interpreter finds the library whatever the program's paths and variables are.
    return sys.executable, ["-I", "-S", __file__, _native.__file__]


def _main(library: str, words: List[str]) -> None:
    loader = ExtensionFileLoader("_native", library)
    spec = spec_from_file_location("_native", library, loader=loader)
    assert spec is not None
    native = module_from_spec(spec)
    loader.exec_module(native)
    try:
        native.hold(words)
    except RuntimeError as error:
        sys.exit(f"perdura: holder: {error}")


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
