"""Phase 1 of each job: its work plan, and the estimate of what it will take."""
