"""A leaderboard: a static page, and a small server that takes prediction files. It never runs anybody's code."""
