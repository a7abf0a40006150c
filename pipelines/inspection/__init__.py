"""What is in a dataset: its records for people, as lines and as pictures."""
