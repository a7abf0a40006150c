"""What Dataflow's launcher runs for the text template."""

import sys

from recordmill.pipelines.templates import launch

if __name__ == "__main__":
    sys.exit(launch("text"))
