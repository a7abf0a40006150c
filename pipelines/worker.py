"""A worker process of the local engine: Beam's own, but it ends with its driver.

Ctrl-C reaches all processes of a terminal; what to do about it is the driver's to say.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

DRIVER_VARIABLE = "RECORDMILL_DRIVER_PID"
_WATCH_EVERY_SECONDS = 0.5


def _watch(driver: int) -> None:
    while True:
        time.sleep(_WATCH_EVERY_SECONDS)
        if os.getppid() != driver:
            os._exit(1)


def main() -> None:
    """Runs Beam's worker until the driver is done with it, or gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    driver = int(os.environ[DRIVER_VARIABLE])
    threading.Thread(target=_watch, args=(driver,), name="watch_driver", daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)
    # Everything is written and closed; taking a loaded interpreter apart takes half a second.
    os._exit(0)


if __name__ == "__main__":
    main()
