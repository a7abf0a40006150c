"""One module for each command of `recordmill`, with a `main(arguments)`."""
