"""A process of Jobplane: `python PATH/jobplane/program.py MODULE ARGUMENT...` calls `main()` of a module of `app`.

Called by the command line, and by those that start a process of their own, such as `jobplane up`. It finds `app` by its own
place, so it does not matter how Python is told to look for packages, or which others are installed.
"""

import gc
import importlib
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def run(module: str) -> None:
    """Call `main()` of a module of `app`, with the arguments in `sys.argv`."""
    root = str(_find_root())
    if root not in sys.path[:1]:
        sys.path.insert(0, root)  # before all others: there may be another package `app`
    gc.disable()  # imports leave no cycles to collect, and the search for them costs a fifth of the start
    main = importlib.import_module(module).main
    gc.freeze()
    # Requests and pods leave hardly any cycles either: the default thresholds cost them a tenth of the time.
    gc.set_threshold(20_000, 20, 50)
    gc.enable()
    main()


def command(module: str) -> list[str]:
    """Return the command that runs a module of `app` in a process of its own, without its arguments.

    With -P: whatever lies in the working folder is not imported.
    """
    return [sys.executable, "-P", __file__, module]


def _find_root() -> Path:
    """Return the folder that holds `app`: of a wheel this one, of a checkout the one above."""
    return _HERE if (_HERE / "app").is_dir() else _HERE.parent


if __name__ == "__main__":
    sys.argv[0] = "jobplane"  # which is what a usage error is to name
    run(sys.argv.pop(1))
