"""Speed and memory, measured side by side with a peer in one run and reported as ratios."""
