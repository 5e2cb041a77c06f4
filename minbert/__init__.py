"""What the course writes from scratch: text -> ids -> hidden states, and the optimizer. Knows no task."""
