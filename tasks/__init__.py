"""What is learned: one file a task. registry.py has the only list."""
