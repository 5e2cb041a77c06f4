"""Seeds: numbers drawn from names, so that every part of a run has a generator of its own."""
import hashlib


def seed_of(*parts: object) -> int:
    """Return a 63-bit seed. Different parts give different seeds, the same on every machine.

    >>> seed_of(11711, "heads") == seed_of(11711, "heads"), seed_of(1) == seed_of(2)
    (True, False)
    """
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big") >> 1
