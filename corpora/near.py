"""Suggest what a misspelt word may have meant."""
import difflib
from collections.abc import Iterable


def near(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" if a known word is close, else an empty string.

    >>> near("pcgard", ["sum", "pcgrad"])
    " (did you mean 'pcgrad'?)"
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""
