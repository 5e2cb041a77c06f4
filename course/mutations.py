"""Is every known mistake caught by its exercise's check, and named by its own name? Does every right variant pass?

    python -m course.mutations [--exercise NAME ...] [--write] [--table docs/mutations.md]
                               [--seeds 10] [--float32] [--threads 4]

Each mistake is planted in the lesson's text, in memory, and the exercise's probes run on it. --write stores the
outputs: the checks recognise mistakes by them. The exit status is 1 if a mistake survives, if two have the same
outputs, or if a variant fails.
"""
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import torch

from corpora.files import write_text
from corpora.flags import Parser, positive
from course import fingerprints, probes
from course.exercises import load_course
from course.fingerprints import SEED, Fingerprints
from course.mistakes import Mistake, Variant, encoder, others
from course.patched import adapters_of
from course.probes import PROBES, Arrays

MISTAKES: list[Mistake] = [*encoder.MISTAKES, *others.MISTAKES]
VARIANTS: list[Variant] = [*encoder.VARIANTS, *others.VARIANTS]


def outputs_of(subject: Mistake | Variant | None, exercise: str, seed: int = SEED) -> Arrays:
    """Run an exercise's probes on the lesson, with the changes of a mistake or a variant."""
    with adapters_of(changes=subject.changes if subject is not None else ()) as adapters, torch.enable_grad():
        return PROBES[exercise](adapters, seed)


def fingerprints_of(exercise: str, seed: int = SEED) -> Fingerprints:
    """Run the reference, the right forms and all mistakes of an exercise."""
    return Fingerprints(
        outputs_of(None, exercise, seed),
        {one.id: outputs_of(one, exercise, seed) for one in VARIANTS if one.exercise == exercise and one.form},
        {one.id: outputs_of(one, exercise, seed) for one in MISTAKES if one.exercise == exercise})


def faults(exercise: str, found: Fingerprints, outputs_by_id: dict[str, Arrays], seed: int = SEED) -> list[str]:
    """Return what is wrong with an exercise's check: survivors, mistakes that look alike, right variants that fail.

    Args:
        exercise: whose check it is.
        found: what the check compares with.
        outputs_by_id: what the mistakes put out. In another precision these are not quite the ones of `found`.
        seed: of the probes.
    """
    lines = [] if found.right(outputs_of(None, exercise, seed)) == "" else ["the reference fails"]
    for one in MISTAKES:
        if one.exercise != exercise:
            continue
        outputs = outputs_by_id[one.id]
        if found.right(outputs) is not None:
            lines.append(f"{one.id} survives: {one.title}")
        elif found.named(outputs) != [one.id]:
            lines.append(f"{one.id} is taken for {', '.join(found.named(outputs))}: {one.title}")
    for other in VARIANTS:
        if other.exercise == exercise and found.right(outputs_of(other, exercise, seed)) is None:
            lines.append(f"{other.id} is right and fails: {other.title}")
    return lines


def faults_in_float32(exercise: str, found: Fingerprints, seed: int) -> list[str]:
    """Run everything in float32, and compare with the outputs in float64. Returns what is wrong.

    Args:
        exercise: to try.
        found: its outputs in float64, for the same seed.
        seed: of the probes.
    """
    with mock.patch.object(probes, "PRECISION", torch.float32):
        return faults(exercise, found, fingerprints_of(exercise, seed).mistakes, seed)


def table(all_fingerprints: dict[str, Fingerprints]) -> str:
    """Return docs/mutations.md."""
    course = load_course()
    lines = ["# Known mistakes", "",
             "Made by `python -m course.mutations --table docs/mutations.md`. Every mistake is planted in the lesson's",
             "text, caught by its exercise's check, and named. The outputs that show it stand in the last column.", ""]
    for name, found in all_fingerprints.items():
        exercise = course.exercises[name]
        lines += [f"## {exercise.number}. {exercise.title}", "",
                  "| mistake | your output equals | look at | shown by |", "|---|---|---|---|"]
        for one in MISTAKES:
            if one.exercise == name:
                shown = [output for output, value in found.mistakes[one.id].items()
                         if not fingerprints.same(found.reference[output], value)]
                more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
                lines.append(f"| {one.id} | {one.title} | {one.cure} | {'; '.join(shown[:3])}{more} |")
        right = [f"{one.title}{' (another form: its numbers differ)' if one.form else ''}" for one in VARIANTS
                 if one.exercise == name]
        lines += ["", f"Right as well: {'; '.join(right)}." if right else "", ""]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m course.mutations", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--exercise", nargs="+", choices=list(PROBES), default=list(PROBES), metavar="NAME")
    parser.add_argument("--write", action="store_true", help="store the outputs in course/checks/")
    parser.add_argument("--table", type=Path, help="write the table of mistakes there")
    parser.add_argument("--seeds", type=positive, default=1, help="how many seeds to try (default: 1)")
    parser.add_argument("--float32", action="store_true", help="also in float32: do the checks name the same mistakes?")
    parser.add_argument("--threads", type=positive, default=1, help="torch's threads (default: 1)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    found: dict[str, Fingerprints] = {}
    wrong: list[str] = []
    for exercise in options.exercise:
        known = len(wrong)
        for seed in range(SEED, SEED + options.seeds):
            one = fingerprints_of(exercise, seed)
            found.setdefault(exercise, one)
            wrong += [f"{exercise}, seed {seed}: {line}" for line in faults(exercise, one, one.mistakes, seed)]
            if options.float32:
                wrong += [f"{exercise}, seed {seed}, float32: {line}"
                          for line in faults_in_float32(exercise, one, seed)]
        print(f"{exercise}: {len(found[exercise].mistakes)} mistakes", flush=True)
        for line in wrong[known:]:
            print(f"FAULT {line}", flush=True)
    mistakes = sum(len(one.mistakes) for one in found.values())
    variants = sum(one.exercise in options.exercise for one in VARIANTS)
    print(f"{mistakes} mistakes, {variants} right variants, {len(wrong)} faults")
    if wrong:
        return 1
    if options.write:
        for exercise, one in found.items():
            fingerprints.save(exercise, one)
        messages = {one.id: {"title": one.title, "cure": one.cure} for one in MISTAKES}
        messages |= {one.id: {"title": one.title} for one in VARIANTS if one.form}
        write_text(fingerprints.FOLDER / "messages.json", json.dumps(messages, indent=1, ensure_ascii=False) + "\n")
    if options.table is not None:
        write_text(options.table, table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
