"""`python -m prolip`, and what the command `prolip` starts."""

import _thread
import os
import signal
import sys
import time
from typing import Any


def main() -> None:
    """Run the command line."""
    sys.unraisablehook = _interrupt_again
    try:
        from prolip.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


def _interrupt_again(ignored: Any) -> None:
    """Ctrl-C inside a callback, as every import has one, is lost to Python: send it again, from outside."""
    if ignored.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(ignored)
        return

    def soon() -> None:
        time.sleep(0.01)
        if sys.platform == "win32":  # where os.kill ends the process
            signal.raise_signal(signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)

    _thread.start_new_thread(soon, ())


if __name__ == "__main__":
    main()
