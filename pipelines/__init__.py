"""Jobs: options, planning, engines, the command line."""
