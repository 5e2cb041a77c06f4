"""The tokenizer, from scratch and fast, against transformers' fast BERT tokenizer: the same ids for any text."""
import json
import random
import shutil
import tempfile
from pathlib import Path

import pytest
import tokenizers
import transformers
from conftest import case, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from minbert.tokenizer import SPECIAL_TOKENS, BertTokenizer, Cleaning, longest_first, normalize_character


@pytest.fixture(scope="module")
def ours(model_directory):
    return BertTokenizer.load(model_directory)


@pytest.fixture(scope="module")
def reference(model_directory):
    return as_text(transformers.BertTokenizerFast.from_pretrained(model_directory, model_max_length=10**9))


def as_text(reference):
    """The reference, told that special tokens in a text are ordinary text, as they are for us."""
    reference.split_special_tokens = True
    return reference


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
def test_ids_of_real_sentences(ours, reference, shared_data):
    """A third of the distinct lines and fields of all files: whatever the format, it is text."""
    texts = set()
    for path in sorted(shared_data.rglob("*")):
        if path.is_file() and "small" not in path.relative_to(shared_data).parts:
            for line in path.read_text("utf-8", errors="replace").split("\n"):
                texts.update(line.split("\t"))
    texts = sorted(texts)
    assert len(texts) > 100_000
    texts = texts[::3]
    for start in range(0, len(texts), 50_000):
        part = texts[start:start + 50_000]
        expected = reference(part, add_special_tokens=False)["input_ids"]
        assert ours.ids(part) == expected


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_remembered_words_are_tokenized_alike(ours, text):
    assert ours.ids([text, text])[1] == [token.id for token in ours.tokenize(text)]


CLEANINGS = [Cleaning(), Cleaning(lowercase=False, strip_accents=True), Cleaning(lowercase=False),
             Cleaning(strip_accents=False), Cleaning(split_chinese=False)]


@pytest.mark.parametrize("cleaning", [*CLEANINGS[:2], *(pytest.param(other, marks=pytest.mark.slow)
                                                       for other in CLEANINGS[2:])])
def test_every_code_point_is_classified_as_in_the_reference(cleaning):
    normalizer = normalizers.BertNormalizer(lowercase=cleaning.lowercase, strip_accents=cleaning.strip_accents,
                                            handle_chinese_chars=cleaning.split_chinese)
    splitter = pre_tokenizers.BertPreTokenizer()
    wrong = []
    for code in range(0x110000):
        character = chr(code)
        # New letters are lower-cased by newer tables only; no vocabulary has them, and they stay unknown either way.
        if 0xD800 <= code < 0xE000 or code == 0x11938 or (cleaning.lowercase and code in NEW_CAPITALS):
            continue
        expected = [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str("a" + character + "b"))]
        if ("a" + normalize_character(character, cleaning) + "b").split() != expected:
            wrong.append(hex(code))
    assert not wrong, wrong[:20]


NEW_CAPITALS = {0x1C89, *range(0xA7CB, 0xA7DD), *range(0x10D50, 0x10D66), *range(0x16EA0, 0x16EB9)}


@pytest.mark.parametrize("given_case", cases("tokenizer"))
def test_cases(ours, given_case):
    encoding = ours.encode(given_case["input"]["text"])
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert getattr(encoding, name) == given_case["expected"][name]
    assert [ours.vocabulary[i] for i in encoding.input_ids[1:-1]] == given_case["expected"]["tokens"]


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


@pytest.mark.parametrize("cleaning", [*CLEANINGS, Cleaning(max_word_length=5)])
@pytest.mark.parametrize("files", ["vocab.txt and tokenizer_config.json", "tokenizer.json"])
def test_every_cleaning_is_saved_obeyed_and_equals_the_reference(ours, tmp_path, cleaning, files):
    BertTokenizer(ours.id_of, cleaning).save(tmp_path)
    if files == "tokenizer.json":
        (tmp_path / "vocab.txt").unlink()
        (tmp_path / "tokenizer_config.json").unlink()
    elif cleaning.max_word_length == 100:  # a tokenizer_config.json has no such setting
        (tmp_path / "tokenizer.json").unlink()
    again = BertTokenizer.load(tmp_path)
    assert again.cleaning.strips_accents == cleaning.strips_accents
    if (tmp_path / "tokenizer.json").exists():
        reference = tokenizers.Tokenizer.from_str((tmp_path / "tokenizer.json").read_text())
    else:
        reference = transformers.AutoTokenizer.from_pretrained(tmp_path).backend_tokenizer
    reference.encode_special_tokens = True
    texts = hostile_texts(1500)
    expected = [encoding.ids for encoding in reference.encode_batch(texts, add_special_tokens=False)]
    assert again.ids(texts) == expected
    assert BertTokenizer(ours.id_of, cleaning).ids(texts) == expected


def folder_with(directory, vocabulary=None, **files):
    """A tokenizer's folder: vocab.txt of these tokens, and JSON files by their stems."""
    if vocabulary is not None:
        (directory / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    for stem, content in files.items():
        (directory / f"{stem}.json").write_text(content if isinstance(content, str) else json.dumps(content),
                                                encoding="utf-8")
    return directory


def test_accents_stay_where_the_folder_says_so(tmp_path):
    given = case("tok-strip-accents-off")["input"]
    folder_with(tmp_path, given["vocab"], tokenizer_config=given["tokenizer_config"])
    tokenizer = BertTokenizer.load(tmp_path)
    expected = case("tok-strip-accents-off")["expected"]["tokens"]
    assert [tokenizer.vocabulary[token.id] for token in tokenizer.tokenize(given["text"])] == expected
    variant = given["variant"]
    folder_with(tmp_path, tokenizer_config=variant["tokenizer_config"])
    tokenizer = BertTokenizer.load(tmp_path)
    assert [tokenizer.vocabulary[token.id] for token in tokenizer.tokenize(variant["text"])] == variant["tokens"]


WORDS = [*SPECIAL_TOKENS, "dog", "##s", "[", "]", "sep", "cls", "pad", "mask"]


@pytest.mark.parametrize("word", ["[SEP]", "[CLS]", "[PAD]", "[MASK]"])
def test_text_never_makes_special_tokens(word):
    tokenizer = BertTokenizer(WORDS)
    expected = [tokenizer.id_of[piece] for piece in ("[", word[1:-1].lower(), "]")]
    assert tokenizer.ids([word]) == [expected] and [t.id for t in tokenizer.tokenize(word)] == expected
    assert tokenizer.word_ids([word])[0] == expected and tokenizer.encode(word).input_ids[1:-1] == expected
    assert tokenizer.ids([f"dog{word}dogs"])[0][1:-2] == expected


def tokenizer_json(ids, **changes):
    BertTokenizer(WORDS).save(folder := Path(tempfile.mkdtemp()))
    values = json.loads((folder / "tokenizer.json").read_text())
    shutil.rmtree(folder)
    values["model"]["vocab"] = ids
    for place, value in changes.items():
        *parents, name = place.split("__")
        target = values
        for parent in parents:
            target = target[parent]
        target[name] = value
    return values


IDS = {token: number for number, token in enumerate(WORDS)}


def test_ids_with_a_hole_keep_their_numbers(tmp_path):
    ids = {**IDS, "dog": 40}
    folder_with(tmp_path, tokenizer=tokenizer_json(ids))
    tokenizer = BertTokenizer.load(tmp_path)
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.ids(["dogs"]) == [reference.encode("dogs", add_special_tokens=False).ids] == [[40, 6]]
    assert len(tokenizer.vocabulary) == 41
    tokenizer.save(tmp_path)  # and vocab.txt holds the place of a hole
    assert BertTokenizer.load(tmp_path).ids(["dogs"]) == [[40, 6]]


@pytest.mark.parametrize(("files", "message"), [
    ({"tokenizer": tokenizer_json({**IDS, "dog": -1})}, r"tokenizer.json: the id of 'dog' is -1"),
    ({"tokenizer": tokenizer_json({**IDS, "dog": "5"})}, r"the id of 'dog' is '5'"),
    ({"tokenizer": tokenizer_json({**IDS, "dog": 6})}, r"'##s' and 'dog' both have the id 6"),
    ({"tokenizer": tokenizer_json({**IDS, "dog": 10**12})}, r"the id of 'dog' is 1000000000000"),
    ({"tokenizer": tokenizer_json(IDS, model__type="BPE")}, r"model type is 'BPE'; this tokenizer has only 'Word"),
    ({"tokenizer": tokenizer_json(IDS, normalizer={"type": "Lowercase"})}, r"normalizer type is 'Lowercase'"),
    ({"tokenizer": tokenizer_json(IDS, normalizer=None)}, r"normalizer is None"),
    ({"tokenizer": tokenizer_json(IDS, normalizer__clean_text=False)}, r"normalizer clean_text is False"),
    ({"tokenizer": tokenizer_json(IDS, normalizer__lowercase="yes")}, r"lowercase is 'yes'; expected bool"),
    ({"tokenizer": tokenizer_json(IDS, pre_tokenizer={"type": "Whitespace"})}, r"pre_tokenizer type is 'Whitespace'"),
    ({"tokenizer": tokenizer_json(IDS, added_tokens=[{"content": "<x>", "id": 5}])}, r"added token '<x>'"),
    ({"tokenizer": tokenizer_json(IDS, model=[])}, r"has no model.vocab"),
    ({"tokenizer": "[]"}, r"tokenizer.json: found a JSON list; expected an object"),
    ({"tokenizer": "{"}, r"tokenizer.json: cannot be read as JSON"),
    ({"tokenizer": "[" * 100_000}, r"tokenizer.json: cannot be read as JSON"),
    ({"tokenizer": '{"model": ' + "9" * 5000 + "}"}, r"tokenizer.json: cannot be read as JSON"),
    ({"vocabulary": WORDS, "tokenizer_config": {"do_lower_case": "false"}}, r"do_lower_case is 'false'; expected bool"),
    ({"vocabulary": WORDS, "tokenizer_config": {"do_basic_tokenize": False}}, r"do_basic_tokenize is False"),
    ({"vocabulary": WORDS, "tokenizer_config": {"added_tokens_decoder": {"13": {"content": "<y>"}}}},
     r"added token '<y>'"),
    ({"vocabulary": WORDS[::-1], "tokenizer": tokenizer_json(IDS)}, r"in vocab.txt and \d+ in tokenizer.json"),
])
def test_what_is_not_obeyed_is_refused_by_name(tmp_path, files, message):
    folder_with(tmp_path, **files)
    with pytest.raises(ValueError, match=message) as caught:
        BertTokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_byte_order_marks_are_no_part_of_the_files(tmp_path):
    folder_with(tmp_path, ["\ufeff" + WORDS[0], *WORDS[1:]], tokenizer_config="\ufeff{\"do_lower_case\": false}")
    tokenizer = BertTokenizer.load(tmp_path)
    assert tokenizer.pad_id == 0 and not tokenizer.lowercase


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
    text, pair = "Café ﬁne!", "Is it?"
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


