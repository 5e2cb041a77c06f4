"""How it is learned. Knows the Task contract, not any task."""
