"""The tokenizer, from scratch and fast, against transformers' fast BERT tokenizer: the same ids for any text."""
import random

import pytest
import transformers
from conftest import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from minbert.tokenizer import BertTokenizer, longest_first, normalize_character


@pytest.fixture(scope="module")
def ours(model_directory):
    return BertTokenizer.load(model_directory)


@pytest.fixture(scope="module")
def reference(model_directory):
    return transformers.BertTokenizerFast.from_pretrained(model_directory, model_max_length=10**9)


def hostile_texts(count: int) -> list[str]:
    """Strings of what breaks tokenizers, mixed at random."""
    rng = random.Random(7)
    kinds = [
        lambda: chr(rng.randrange(0x4E00, 0x9FFF)), lambda: chr(rng.randrange(0x20000, 0x2FA20)),  # CJK
        lambda: chr(rng.randrange(0x300, 0x370)), lambda: chr(rng.randrange(0x900, 0xE00)),  # combining marks, Indic
        lambda: chr(rng.randrange(0, 0xA1)), lambda: chr(rng.choice((0x200B, 0x200D, 0xFEFF, 0xAD, 0x2060, 0xFFFD))),
        lambda: chr(rng.randrange(0x1F300, 0x1FAFF)), lambda: chr(rng.randrange(0x2000, 0x2070)),  # emoji, spaces
        lambda: rng.choice(("[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "[cls]", "[ SEP ]", "[CLS", "SEP]")),
        lambda: rng.choice("aàÅéîßİıŞǅﬁΣς") * rng.randrange(1, 4),
        lambda: rng.choice(("the", "unaffable", "don't", "U.S.A.", "3.14", "co-op", "e\u0301clair", "NAÏVE", "##ing")),
        lambda: chr(rng.choice([c for c in (rng.randrange(0x110000),) if not 0xD800 <= c < 0xE000] or [65])),
        lambda: " " * rng.randrange(1, 4), lambda: rng.choice(("\t", "\n", "\r\n", "\u3000", "\u00a0", "\x0b", "\x85")),
    ]
    texts = ["", " ", "a" * 100, "a" * 101, "x" * 1000, "é" * 1000, "中" * 1000, "\u0301" * 200]
    while len(texts) < count:
        texts.append("".join(rng.choice(kinds)() + (" " if rng.random() < 0.3 else "")
                             for _ in range(rng.randrange(1, 16))))
    return texts


def test_ids_of_20_000_hostile_strings(ours, reference):
    texts = hostile_texts(20_000)
    expected = reference(texts, add_special_tokens=False)["input_ids"]
    assert ours.ids(texts) == expected
    for text, ids in zip(texts, expected, strict=True):
        assert [token.id for token in ours.tokenize(text)] == ids, repr(text)


@pytest.mark.slow
def test_ids_of_all_real_sentences(ours, reference, shared_data):
    """Every distinct line and field of every file: whatever the format, it is text."""
    texts = set()
    for path in sorted(shared_data.rglob("*")):
        if path.is_file() and "small" not in path.relative_to(shared_data).parts:
            for line in path.read_text("utf-8", errors="replace").split("\n"):
                texts.update(line.split("\t"))
    texts = sorted(texts)
    assert len(texts) > 100_000
    for start in range(0, len(texts), 50_000):
        part = texts[start:start + 50_000]
        expected = reference(part, add_special_tokens=False)["input_ids"]
        assert ours.ids(part) == expected


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_remembered_words_are_tokenized_alike(ours, text):
    assert ours.ids([text, text])[1] == [token.id for token in ours.tokenize(text)]


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_code_point_is_classified_as_in_the_reference(lowercase):
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    splitter = pre_tokenizers.BertPreTokenizer()
    wrong = []
    for code in range(0x110000):
        character = chr(code)
        # New letters are lower-cased by newer tables only; no vocabulary has them, and they stay unknown either way.
        if 0xD800 <= code < 0xE000 or code == 0x11938 or (lowercase and code in NEW_CAPITALS):
            continue
        expected = [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str("a" + character + "b"))]
        if ("a" + normalize_character(character, lowercase) + "b").split() != expected:
            wrong.append(hex(code))
    assert not wrong, wrong[:20]


NEW_CAPITALS = {0x1C89, *range(0xA7CB, 0xA7DD), *range(0x10D50, 0x10D66), *range(0x16EA0, 0x16EB9)}


@pytest.mark.parametrize("case", cases("tokenizer"))
def test_cases(ours, case):
    encoding = ours.encode(case["input"]["text"])
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert getattr(encoding, name) == case["expected"][name]
    assert [ours.vocabulary[i] for i in encoding.input_ids[1:-1]] == case["expected"]["tokens"]


@pytest.mark.parametrize("max_length", [3, 4, 8, 17, None])
def test_pairs_truncation_offsets_and_word_ids(ours, reference, max_length):
    rng = random.Random(1)
    texts = [text for text in hostile_texts(800) if text.strip()]
    for _ in range(200):
        first, second = rng.choice(texts), rng.choice(texts)
        if not first or not second:
            continue
        mine = ours.encode(first, second, max_length)
        theirs = reference(first, second, max_length=max_length, truncation=max_length is not None,
                           return_offsets_mapping=True)
        assert mine.input_ids == theirs["input_ids"]
        assert mine.token_type_ids == theirs["token_type_ids"]
        assert mine.word_ids == theirs.word_ids()
        assert mine.offsets == [tuple(pair) for pair in theirs["offset_mapping"]]
        whole = len(ours.encode(first, second).input_ids)
        assert mine.truncated == whole - len(mine.input_ids)


def test_cased_tokenization_equals_the_reference(ours, tmp_path):
    ours.save(tmp_path)
    cased = BertTokenizer(ours.vocabulary, lowercase=False)
    theirs = transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"), do_lower_case=False)
    texts = hostile_texts(2000)
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    assert cased.ids(texts) == expected


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_longest_first_keeps_what_fits_and_favours_the_shorter(first, second, room):
    kept = longest_first(first, second, room) if first + second > room else (first, second)
    assert sum(kept) == min(first + second, room)
    assert 0 <= kept[0] <= first and 0 <= kept[1] <= second
    if first + second > room and kept[0] < first and kept[1] < second:
        assert abs(kept[0] - kept[1]) <= 1  # both gave way, so neither is favoured


def test_words_given_one_by_one_know_their_pieces(ours):
    ids, owners = ours.word_ids(["unaffable", "", "don't", "x"])
    assert [ours.vocabulary[i] for i in ids] == ["una", "##ffa", "##ble", "don", "'", "t", "x"]
    assert owners == [0, 0, 0, 2, 2, 2, 3]


def test_saved_files_are_read_alike_by_transformers_and_by_us(ours, tmp_path):
    ours.save(tmp_path)
    again, theirs = BertTokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    from_json = BertTokenizer.load(tmp_path)
    text, pair = "Café [SEP] ﬁne!", "Is it?"
    expected = ours.encode(text, pair).input_ids
    assert again.encode(text, pair).input_ids == expected
    assert from_json.encode(text, pair).input_ids == expected
    assert theirs(text, pair)["input_ids"] == expected


@pytest.mark.parametrize(("content", "message"), [
    ("a\nb\n", r"lacks \[PAD\], \[UNK\]"), (None, "neither vocab.txt nor tokenizer.json")])
def test_a_directory_without_a_vocabulary_is_a_clear_error(tmp_path, content, message):
    if content is not None:
        (tmp_path / "vocab.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        BertTokenizer.load(tmp_path)


