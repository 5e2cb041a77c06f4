"""Generated corpora, so that every program runs, and visibly learns, with no data at all.

A sentence is made of five roles (who, does, what, where, when); a role holds a concept and a concept has several
wordings. Two sentences with the same concepts are paraphrases, with some of them alike to that degree, and the role
each word came from gives phrase alignments for free. Reviews are an opinion of one of five strengths about part of a
film. All drawn from one seed; the files are in the formats of the course and of GLUE.
"""
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corpora.files import write_text

# Concept -> its wordings.
WHO = {
    "dog": ("the dog", "the hound", "the puppy"), "child": ("the young child", "the little kid", "the small boy"),
    "doctor": ("the doctor", "the physician", "the medic"), "cook": ("the head chef", "the chief cook"),
    "teacher": ("the school teacher", "the instructor", "the class tutor"),
    "farmer": ("the old farmer", "the elderly grower"), "crowd": ("a large crowd", "a big group of people"),
    "police": ("the police officer", "the cop", "the constable"), "singer": ("the famous singer", "the star vocalist"),
    "team": ("the home team", "the local side"),
}
DOES = {
    "find": ("found", "discovered", "came upon"), "carry": ("carried", "was carrying", "hauled"),
    "buy": ("bought", "purchased", "paid for"), "watch": ("watched", "looked at", "observed"),
    "repair": ("repaired", "fixed", "mended"), "clean": ("cleaned", "washed", "scrubbed"),
    "hide": ("hid", "concealed", "tucked away"), "paint": ("painted", "put paint on"),
    "lose": ("lost", "misplaced"), "break": ("broke", "smashed", "shattered"),
}
WHAT: dict[str, tuple[str, ...]] = {
    "car": ("a red car", "a crimson automobile"), "ball": ("the round ball", "the rubber ball"),
    "bag": ("a heavy bag", "a weighty sack"), "picture": ("an old picture", "an ancient photograph"),
    "lamp": ("the broken lamp", "the damaged light"), "boat": ("a wooden boat", "a timber vessel"),
    "letter": ("a long letter", "a lengthy note"), "bicycle": ("the new bicycle", "the brand new bike"),
    "guitar": ("an expensive guitar", "a costly guitar"), "cake": ("a sweet cake", "a sugary dessert"),
}
WHERE: dict[str, tuple[str, ...]] = {
    "park": ("in the park", "at the public garden"), "kitchen": ("in the kitchen", "near the stove"),
    "street": ("on the street", "along the road"), "beach": ("on the sandy beach", "by the sea shore"),
    "station": ("at the train station", "at the railway stop"), "forest": ("in the dark forest", "in the gloomy woods"),
    "market": ("at the busy market", "in the crowded bazaar"),
    "school": ("behind the school", "at the rear of the school"),
}
WHEN: dict[str, tuple[str, ...]] = {
    "morning": ("early in the morning", "at dawn"), "night": ("late at night", "after dark"),
    "yesterday": ("the day before", "yesterday"), "winter": ("during the winter", "in the cold season"),
    "lunch": ("at lunch time", "around noon"), "week": ("last week", "seven days ago"),
    "holiday": ("during the holiday", "over the vacation"), "rain": ("in the rain", "while it rained"),
}
ROLES: dict[str, dict[str, tuple[str, ...]]] = {"who": WHO, "does": DOES, "what": WHAT, "where": WHERE, "when": WHEN}
GENERAL = {"dog": "an animal", "child": "a person", "doctor": "a person", "cook": "a person", "teacher": "a person",
           "farmer": "a person", "crowd": "some people", "police": "a person", "singer": "a person",
           "team": "some people"}
ORDERS = (("who", "does", "what", "where", "when"), ("when", ",", "who", "does", "what", "where"),
          ("where", ",", "who", "does", "what", "when"), ("who", "does", "what", "when", "where"))

OPINIONS = (  # by strength, 0 very negative to 4 very positive
    ("utterly awful", "painfully bad", "a complete disaster", "unwatchable rubbish", "a miserable failure"),
    ("rather dull", "somewhat tedious", "a bit of a letdown", "mostly forgettable", "less than convincing"),
    ("neither good nor bad", "about average", "a routine exercise", "much like the last one", "exactly what it says"),
    ("fairly enjoyable", "quite charming", "a pleasant surprise", "mostly engaging", "well worth a look"),
    ("absolutely brilliant", "a stunning triumph", "simply superb", "an unforgettable masterpiece", "pure delight"),
)
ASPECTS = ("the acting", "the plot", "the script", "the camera work", "the music", "the direction", "the ending",
           "the dialogue", "the first half", "the whole film")
FRAMES = ("{aspect} is {opinion} .", "{opinion} , that is what {aspect} is .", "i found {aspect} {opinion} .",
          "for a film about {topic} , {aspect} is {opinion} .", "{aspect} , all in all , is {opinion} .",
          "a story of {topic} in which {aspect} is {opinion} .")
TOPICS = ("two brothers", "a lost city", "the last war", "a small town", "first love", "a bank robbery",
          "growing old", "a trip to the moon")


@dataclass
class Sentence:
    """Hold a generated sentence."""

    words: list[str]
    spans: dict[str, tuple[int, int]]  # role -> half-open span of words


def draw_meaning(rng: random.Random) -> dict[str, str]:
    """Draw a concept for each role."""
    return {role: rng.choice(list(concepts)) for role, concepts in ROLES.items()}


def another(rng: random.Random, role: str, concept: str) -> str:
    """Draw another concept of a role.

    Args:
        rng: draws.
        role, concept: what to replace.
    """
    return rng.choice([other for other in ROLES[role] if other != concept])


def say(rng: random.Random, meaning: dict[str, str]) -> Sentence:
    """Word a meaning, in one of several word orders."""
    words: list[str] = []
    spans: dict[str, tuple[int, int]] = {}
    for role in rng.choice(ORDERS):
        wording = role if role == "," else rng.choice(ROLES[role][meaning[role]])
        spans[role] = (len(words), len(words) + len(wording.split()))
        words += wording.split()
    spans.pop(",", None)
    return Sentence([*words, "."], spans)


def text(sentence: Sentence) -> str:
    """Join a sentence's words."""
    return " ".join(sentence.words)


def sentiment_row(rng: random.Random) -> tuple[str, int]:
    """Draw an opinion and its strength."""
    label = rng.randrange(len(OPINIONS))
    sentence = rng.choice(FRAMES).format(aspect=rng.choice(ASPECTS), opinion=rng.choice(OPINIONS[label]),
                                         topic=rng.choice(TOPICS))
    return sentence, label


def paraphrase_row(rng: random.Random) -> tuple[str, str, int]:
    """Draw a pair. Label 1: another wording. Label 0: one or two roles changed, so that most words still match."""
    meaning = draw_meaning(rng)
    label = int(rng.random() < 0.4)
    other = dict(meaning)
    if not label:
        for role in rng.sample(list(ROLES), rng.choice((1, 2))):
            other[role] = another(rng, role, meaning[role])
    return text(say(rng, meaning)), text(say(rng, other)), label


def similarity_row(rng: random.Random) -> tuple[str, str, float]:
    """Draw a pair with a score: how many of the five roles agree, with a little of an annotator's noise."""
    meaning = draw_meaning(rng)
    same = rng.randrange(len(ROLES) + 1)
    other = dict(meaning)
    for role in rng.sample(list(ROLES), len(ROLES) - same):
        other[role] = another(rng, role, meaning[role])
    score = min(5.0, max(0.0, same + rng.choice((-0.4, -0.2, 0.0, 0.0, 0.2, 0.4))))
    return text(say(rng, meaning)), text(say(rng, other)), round(score, 1)


def inference_group(rng: random.Random) -> tuple[str, dict[str, str]]:
    """Draw a premise and a hypothesis of each label, as SNLI's annotators were asked for.

    Entailment: less detail and a more general word. Contradiction: a role replaced. Neutral: a detail added.
    """
    meaning = draw_meaning(rng)
    hypotheses = {}
    for label in ("entailment", "neutral", "contradiction"):
        said = {role: rng.choice(ROLES[role][meaning[role]]) for role in ROLES}
        if label == "entailment":
            said["who"] = GENERAL[meaning["who"]]
            said["when"] = ""
        elif label == "contradiction":
            role = rng.choice(("does", "what", "where"))
            said[role] = rng.choice(ROLES[role][another(rng, role, meaning[role])])
        else:
            said["when"] += rng.choice((" for a friend", " because of a bet", " for the second time",
                                        " to earn some money"))
        hypotheses[label] = " ".join(" ".join(said.values()).split()) + " ."
    return text(say(rng, meaning)), hypotheses


def aligned_row(rng: random.Random) -> dict:
    """Draw a paraphrase pair with its phrase alignments, in the form of alignment/jsonl.py."""
    meaning = draw_meaning(rng)
    source, target = say(rng, meaning), say(rng, meaning)
    return {"source": source.words, "target": target.words,
            "alignments": [[*source.spans[role], *target.spans[role]] for role in ROLES]}


def rows(make: Callable, count: int, seed: int, name: str) -> list:
    """Draw rows that differ from each other. The same seed and name give the same rows.

    Args:
        make: draws a row.
        count: how many.
        seed, name: of the draw.
    """
    rng = random.Random(f"{seed}/{name}")
    seen: set = set()
    result: list = []
    # A grammar has finitely many sentences: after that many misses in a row it is taken to be exhausted.
    misses = 0
    while len(result) < count and misses < 1000:
        row = make(rng)
        key = json.dumps(row[:2] if isinstance(row, tuple) else row)
        if key in seen:
            misses += 1
            continue
        misses = 0
        seen.add(key)
        result.append(row)
    return result


def _table(header: list[str], records: list[list]) -> str:
    return "".join("\t".join(map(str, record)) + "\n" for record in [header, *records])


def _split(items: list, sizes: dict[str, int]) -> dict[str, list]:
    parts, start = {}, 0
    for split, size in sizes.items():
        parts[split] = items[start:start + size]
        start += size
    return parts


# The names of further training files that recipes/best.toml reads. Here they hold the same examples.
FURTHER = {"ids-sst": "ids-sst-phrases-train.csv", "ids-cfimdb": "cfimdb-sentences.csv",
           "quora": "quora-train-merged2.csv"}


def write_course_files(directory: Path, seed: int = 11711, train: int = 600, dev: int = 300, test: int = 300):
    """Write SST-, CFIMDB-, Quora- and STS-like files in the course's format, and NLI as JSON lines.

    Args:
        directory: the folder.
        seed: of the draws.
        train, dev, test: rows of each split.
    """
    directory = Path(directory)
    sizes = {"train": train, "dev": dev, "test": test}
    total = sum(sizes.values())
    kinds = [("ids-sst", "sentiment", sentiment_row, 1), ("ids-cfimdb", "sentiment", sentiment_row, 1),
             ("quora", "is_duplicate", paraphrase_row, 2), ("sts", "similarity", similarity_row, 2)]
    for stem, label, make, sentences in kinds:
        made = rows(make, total, seed, stem)
        if stem == "ids-cfimdb":  # two classes only: the middle one is left out
            made = [(sentence, int(strength > 2)) for sentence, strength in made if strength != 2]
        # Where the grammar ran out before `total` rows, every split gets its share of what there is.
        shares = {split: size * len(made) // total for split, size in sizes.items()}
        for split, part in _split(made, shares).items():
            names = ["sentence"] if sentences == 1 else ["sentence1", "sentence2"]
            labelled = split != "test"
            records = []
            for index, row in enumerate(part):
                value = float(row[-1]) if label == "is_duplicate" else row[-1]
                records.append([index, f"{stem}-{split}-{index:05d}", *row[:-1], *([value] if labelled else [])])
            content = _table(["", "id", *names, *([label] if labelled else [])], records)
            name = f"{stem}-{split}{'' if labelled else '-student'}.csv"
            write_text(directory / name, content)
            if split == "train" and stem in FURTHER:
                write_text(directory / FURTHER[stem], content)
    # Under the names of SNLI's and MultiNLI's files too, for the recipes that train on one after the other.
    files = {"nli": "nli-{}.jsonl", "snli": "snli_1.0_{}.jsonl", "multinli": "multinli_1.0_{}.jsonl"}
    for stem, pattern in files.items():
        for split, part in _split(rows(inference_group, total, seed, stem), sizes).items():
            content = "".join(json.dumps({"sentence1": premise, "sentence2": hypothesis, "gold_label": label}) + "\n"
                              for premise, hypotheses in part for label, hypothesis in hypotheses.items())
            suffix = "dev_matched" if (stem, split) == ("multinli", "dev") else split
            write_text(directory / pattern.format(suffix), content)


def write_glue_files(directory: Path, seed: int = 11711, train: int = 200, dev: int = 60, test: int = 60):
    """Write GLUE- and PAWS-like files of all layouts, for trying the programs.

    Args:
        directory: the folder.
        seed: of the draws.
        train, dev, test: rows of each split.
    """
    from_pair = {"MRPC": ("Quality", "#1 String", "#2 String"), "QQP": ("is_duplicate", "question1", "question2"),
                 "WNLI": ("label", "sentence1", "sentence2"), "PAWS": ("label", "sentence1", "sentence2")}
    from_inference = {"RTE": ("label", "sentence1", "sentence2"), "QNLI": ("label", "question", "sentence"),
                      "MNLI": ("gold_label", "sentence1", "sentence2")}
    sizes = {"train": train, "dev": dev, "test": test}
    total = sum(sizes.values())

    def write(name: str, header: list[str], records: list[list]):
        content = _table(header, records)
        write_text(Path(directory) / name, content)

    for folder, (label, *names) in from_pair.items():
        for split, part in _split(rows(paraphrase_row, total, seed, folder), sizes).items():
            tested = split == "test"
            header = ["index", *names] if tested else [label, *names]
            write(f"{folder}/{split}.tsv", header,
                  [[index if tested else row[2], *row[:2]] for index, row in enumerate(part)])
    for folder, (label, *names) in from_inference.items():
        pairs = [(premise, hypothesis, kind) for premise, hypotheses in rows(inference_group, total, seed, folder)
                 for kind, hypothesis in hypotheses.items()]
        for split, part in _split(pairs, sizes).items():
            records = []
            for index, (premise, hypothesis, kind) in enumerate(part):
                answer = kind if folder == "MNLI" else "entailment" if kind == "entailment" else "not_entailment"
                records.append([index, premise, hypothesis, *([] if split == "test" else [answer])])
            stems = [f"{split}_matched", f"{split}_mismatched"] if folder == "MNLI" and split != "train" else [split]
            for stem in stems:
                write(f"{folder}/{stem}.tsv", ["index", *names, *([] if split == "test" else [label])], records)
    for split, part in _split(rows(similarity_row, total, seed, "STS-B"), sizes).items():
        write(f"STS-B/{split}.tsv", ["index", "sentence1", "sentence2", *([] if split == "test" else ["score"])],
              [[index, *(row[:2] if split == "test" else row)] for index, row in enumerate(part)])
    opinions = [(sentence, int(strength > 2)) for sentence, strength in rows(sentiment_row, total, seed, "one")]
    for split, part in _split(opinions, sizes).items():
        if split == "test":
            for folder in ("SST-2", "CoLA"):
                write(f"{folder}/test.tsv", ["index", "sentence"], [[i, row[0]] for i, row in enumerate(part)])
        else:
            write(f"SST-2/{split}.tsv", ["sentence", "label"], [list(row) for row in part])
            source, *records = [["toy", label, "", sentence] for sentence, label in part]  # CoLA has no header
            write(f"CoLA/{split}.tsv", source, records)


def write_aligned_files(directory: Path, seed: int = 11711, train: int = 200, dev: int = 40, test: int = 40):
    """Write gold-aligned paraphrase pairs under the names that transfer fine-tuning reads.

    Args:
        directory: the folder.
        seed: of the draws.
        train, dev, test: rows of each split.
    """
    sizes = {"train": train, "dev": dev, "test": test}
    for split, part in _split(rows(aligned_row, sum(sizes.values()), seed, "aligned"), sizes).items():
        content = "".join(json.dumps(row) + "\n" for row in part)
        write_text(Path(directory) / f"{split}.jsonl", content)
