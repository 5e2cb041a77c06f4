"""Known mistakes, and right variants: small changes of the lesson's text, by exercise.

A mistake's changes are applied to the text, its probes are run, and the outputs become its fingerprint: a student's
outputs that equal it have this mistake. Variants are other ways to be right. The instructor's side: not in the handout.
"""
from dataclasses import dataclass

from course.patched import Change


@dataclass(frozen=True)
class Mistake:
    """Hold a known mistake."""

    id: str
    exercise: str
    title: str  # completes "your output equals ..."
    cure: str  # what to look at
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Variant:
    """Hold another right way to write an exercise."""

    id: str
    exercise: str
    title: str
    changes: tuple[Change, ...]
    form: bool = False  # its outputs differ from the reference's by more than rounding, and are right nevertheless


def mistake(identifier: str, exercise: str, file: str, title: str, cure: str, *changes: str) -> Mistake:
    """Make a mistake whose changes are all in one file: before, after, before, after, ..."""
    return Mistake(identifier, exercise, title, cure, tuple(
        (file, changes[index], changes[index + 1]) for index in range(0, len(changes), 2)))


def variant(identifier: str, exercise: str, file: str, title: str, *changes: str, form: bool = False) -> Variant:
    """Make a variant whose changes are all in one file: before, after, before, after, ..."""
    return Variant(identifier, exercise, title, tuple(
        (file, changes[index], changes[index + 1]) for index in range(0, len(changes), 2)), form)
