"""`python -m recordmill.pipelines` is `recordmill`."""

import sys

from recordmill.pipelines.command_line import main

if __name__ == "__main__":
    sys.exit(main())
