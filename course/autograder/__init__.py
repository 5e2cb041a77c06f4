"""Grade a submission. Its code runs as another user, and only the grader's own process compares and writes scores."""
