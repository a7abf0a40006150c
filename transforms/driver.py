"""Local workers end with the process that started them, however that ended."""

import os
import threading
import time

DRIVER_VARIABLE = "RECORDMILL_DRIVER_PID"
_watching = threading.Lock()


def watch_driver() -> None:
    """Ends this worker process within half a second of its driver; does nothing on other
    engines."""
    driver = int(os.environ.get(DRIVER_VARIABLE, "0"))
    if driver in (0, os.getpid()) or not _watching.acquire(blocking=False):
        return

    def watch() -> None:
        while True:
            time.sleep(0.5)
            try:
                os.kill(driver, 0)
            except OSError:
                os._exit(1)

    threading.Thread(target=watch, name="watch_driver", daemon=True).start()
