"""Reports: what a finished run shows. One page a run, one page for several, and the worst errors in a terminal."""
