"""WordPiece tokenization as BERT does it (Devlin et al. 2019; Wu et al. 2016, section 4.1), from scratch.

Text is cleaned and split into words (spaces, punctuation, Chinese characters). A word is cut greedily into the longest
pieces that the vocabulary has. `tokenize` does that with offsets; `ids` does it once for each different word and
remembers. Text never makes special tokens: a user's "[SEP]" becomes the pieces of "[", "sep" and "]".
"""
import functools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from corpora.files import write_json, write_text
from minbert.unicode_tables import CONTROLS, MARKS, PUNCTUATION


@dataclass(frozen=True)
class SpecialTokens:
    """Name the tokens that are no pieces of text.

    >>> BERT_TOKENS.sep, MPNET_TOKENS.sep
    ('[SEP]', '</s>')
    """

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str
    between: int = 1  # separators between the two sentences of a pair

    @property
    def names(self) -> tuple[str, ...]:
        """Return the five tokens."""
        return self.pad, self.unk, self.cls, self.sep, self.mask


BERT_TOKENS = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MPNET_TOKENS = SpecialTokens("<pad>", "[UNK]", "<s>", "</s>", "<mask>", between=2)
SPECIAL_TOKENS = BERT_TOKENS.names
LARGEST_ID = 10_000_000  # of a vocabulary: a larger id is a mistake, and would fill the memory
# Python splits at these control characters, BERT removes them: "a\x0bb" is one word.
_NOT_A_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_CHINESE = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
            (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


@dataclass(frozen=True)
class Cleaning:
    """Say how text is normalised before it is cut into pieces. The defaults are those of BERT's uncased models.

    >>> Cleaning(lowercase=False).strips_accents
    False
    """

    lowercase: bool = True
    strip_accents: bool | None = None  # None: if the text is lowercased
    split_chinese: bool = True  # each Chinese character is a word of its own
    max_word_length: int = 100  # a longer word is [UNK]

    @property
    def strips_accents(self) -> bool:
        """Tell whether accents are stripped."""
        return self.lowercase if self.strip_accents is None else self.strip_accents


@functools.lru_cache(maxsize=1 << 16)
def normalize_character(character: str, cleaning: Cleaning = Cleaning()) -> str:
    """Normalise one character: to nothing, itself, its base letter, or (between spaces) a word of its own."""
    code = ord(character)
    if character in "\t\n\r":
        return " "
    if code in CONTROLS:
        return ""
    if character.isspace():
        return " "
    chinese = cleaning.split_chinese and any(first <= code <= last for first, last in _CHINESE)
    if cleaning.strips_accents:
        character = "".join(c for c in unicodedata.normalize("NFD", character) if ord(c) not in MARKS)
    if cleaning.lowercase:
        character = "".join(c.lower() for c in character)
    separated = "".join(f" {c} " if ord(c) in PUNCTUATION else c for c in character)
    return f" {separated} " if chinese else separated


@dataclass
class Token:
    """Hold one piece of a text."""

    id: int
    start: int  # characters [start, end) of the original text
    end: int
    word: int  # index of the word it is a piece of


@dataclass
class Encoding:
    """Hold one sequence, or a pair in one sequence, with [CLS] and [SEP]."""

    input_ids: list[int]
    token_type_ids: list[int]  # 0 up to the first [SEP], 1 after it
    offsets: list[tuple[int, int]]  # characters of the sentence the token came from; (0, 0) for [CLS] and [SEP]
    word_ids: list[int | None]  # word in its own sentence; None for [CLS] and [SEP]
    truncated: int  # tokens that max_length cut off

    @property
    def attention_mask(self) -> list[int]:
        """Return ones: nothing is padding."""
        return [1] * len(self.input_ids)


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Say how many tokens of each sentence stay if both must fit into `room`. The longer one is cut first.

    Args:
        first, second: tokens of the two sentences.
        room: for both.

    >>> longest_first(10, 3, 9)
    (6, 3)
    """
    short, long = sorted((first, second))
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short, long = room // 2, room - room // 2
    return (short, long) if first <= second else (long, short)


class _WordMemory(dict):
    """Map a raw word to ids, worked out at first sight. A word is normalised alike wherever it stands."""

    LIMIT = 1_000_000  # words; a corpus of random strings must not fill the memory

    def __init__(self, tokenize):
        super().__init__()
        self.tokenize = tokenize

    def __missing__(self, word: str) -> list[int]:
        if len(self) >= self.LIMIT:
            self.clear()
        ids = self[word] = [token.id for token in self.tokenize(word)]
        return ids


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a settings file, with or without a byte order mark.

    Raise ValueError for anything else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read as JSON ({str(error).splitlines()[0]})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: found a JSON {type(values).__name__}; expected an object")
    return values


def _typed(path: Path, values: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    """Return a setting. Raise ValueError if it has another type. A setting that is null takes the default."""
    value = values.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        raise ValueError(f"{path}: {name} is {value!r}; expected {kind.__name__}")
    return value


def _require_only(path: Path, what: str, values: Mapping[str, Any], **expected: Any):
    """Raise ValueError that names a setting which differs from the only value that this tokenizer has."""
    for name, value in expected.items():
        if values.get(name, value) not in (value, None):
            raise ValueError(f"{path}: {what} {name} is {values[name]!r}; this tokenizer has only {value!r}")


def _special(path: Path, token: Any) -> str:
    """Return an added token's text. Raise ValueError if neither BERT nor MPNet has it."""
    if token not in (*BERT_TOKENS.names, *MPNET_TOKENS.names, "<unk>"):  # MPNet's files list <unk>, and use [UNK]
        raise ValueError(f"{path}: added token {token!r}; this tokenizer knows no tokens but pieces and "
                         f"{', '.join(BERT_TOKENS.names)}, or MPNet's {', '.join(MPNET_TOKENS.names)}")
    return str(token)


def _tokenizer_json(path: Path) -> tuple[dict[str, int], Cleaning]:
    """Read a tokenizer.json: its ids and its cleaning. Raise ValueError that names what this tokenizer does not do."""
    saved = read_json(path)
    model, normalizer = saved.get("model"), saved.get("normalizer")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise ValueError(f"{path}: has no model.vocab with an id for each token; expected a WordPiece tokenizer")
    _require_only(path, "model", model, type="WordPiece", unk_token="[UNK]", continuing_subword_prefix="##")
    if not isinstance(normalizer, dict):
        raise ValueError(f"{path}: normalizer is {normalizer!r}; expected a BertNormalizer")
    _require_only(path, "normalizer", normalizer, type="BertNormalizer", clean_text=True)
    pre_tokenizer = saved.get("pre_tokenizer")
    _require_only(path, "pre_tokenizer", pre_tokenizer if isinstance(pre_tokenizer, dict) else {"type": pre_tokenizer},
                  type="BertPreTokenizer")
    ids: dict[str, int] = {}
    token_of: dict[int, str] = {}
    for token, number in model["vocab"].items():
        if type(number) is not int or not 0 <= number <= LARGEST_ID:
            raise ValueError(f"{path}: the id of {token!r} is {number!r}; expected a whole number from 0")
        if number in token_of:
            raise ValueError(f"{path}: {token!r} and {token_of[number]!r} both have the id {number}")
        ids[token], token_of[number] = number, token
    added = saved.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise ValueError(f"{path}: added_tokens is {str(added)[:40]!r}; expected a list of objects")
    for token in added:
        if ids.get(_special(path, token.get("content"))) != token.get("id"):
            raise ValueError(f"{path}: added token {token['content']!r} has the id {token.get('id')!r}, the vocabulary "
                             f"{ids.get(token['content'])!r}")
    return ids, Cleaning(_typed(path, normalizer, "lowercase", bool, True),
                         _typed(path, normalizer, "strip_accents", bool, None),
                         _typed(path, normalizer, "handle_chinese_chars", bool, True),
                         _typed(path, model, "max_input_chars_per_word", int, 100))


def _vocabulary_file(path: Path) -> dict[str, int]:
    """Read a vocab.txt: a token a line, its id the number of the line from 0."""
    try:
        tokens = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    tokens = tokens[:-1] if tokens[-1] == "" else tokens
    return {token.rstrip("\r"): number for number, token in enumerate(tokens)}


class BertTokenizer:
    """Turn text into token ids, and ids into the sequences that BERT reads.

    Args:
        vocabulary: tokens in the order of their ids, or an id for each token (ids may have holes).
        cleaning: how text is normalised first.

    >>> tokenizer = BertTokenizer([*SPECIAL_TOKENS, "dog", "##s", "run"])
    >>> tokenizer.ids(["Dogs run"])
    [[5, 6, 7]]
    >>> tokenizer.build([5, 6], [7])
    ([2, 5, 6, 3, 7, 3], [0, 0, 0, 0, 1, 1])
    """

    def __init__(self, vocabulary: Sequence[str] | Mapping[str, int], cleaning: Cleaning = Cleaning()):
        ids = dict(vocabulary) if isinstance(vocabulary, Mapping) else {
            token: number for number, token in enumerate(vocabulary)}
        self.id_of, self.cleaning = ids, cleaning
        # Only an MPNet's vocabulary has all of MPNet's. It lists BERT's as well, and does not use them.
        self.special = MPNET_TOKENS if all(token in ids for token in MPNET_TOKENS.names) else BERT_TOKENS
        missing = [token for token in self.special.names if token not in ids]
        if missing:
            raise ValueError(f"the vocabulary of {len(ids)} tokens lacks {', '.join(missing)}")
        # A hole is filled with words that no text makes: pieces have no spaces.
        self.vocabulary = [f"no token {number}" for number in range(max(ids.values()) + 1)]
        for token, number in ids.items():
            self.vocabulary[number] = token
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[token] for token in self.special.names)
        self._remembered = _WordMemory(self.tokenize)

    @property
    def lowercase(self) -> bool:
        """Tell whether text is lowercased."""
        return self.cleaning.lowercase

    @property
    def special_of_pair(self) -> int:
        """Return how many special tokens a sequence of two sentences has."""
        return 2 + self.special.between

    @classmethod
    def load(cls, directory: Path) -> "BertTokenizer":
        """Read vocab.txt and tokenizer.json (one of them is enough) and tokenizer_config.json of a model directory.

        Every setting that changes ids is obeyed. The settings of tokenizer_config.json go before those of
        tokenizer.json, as in transformers.

        Raises:
            ValueError: a file is damaged, the two vocabularies differ, or a setting asks for what this tokenizer does
                not do. The error names the file and the setting.
        """
        directory = Path(directory)
        complete, settings_file = directory / "tokenizer.json", directory / "tokenizer_config.json"
        ids: dict[str, int] | None = None
        cleaning = Cleaning()
        if complete.exists():
            ids, cleaning = _tokenizer_json(complete)
        if (directory / "vocab.txt").exists():
            listed = _vocabulary_file(directory / "vocab.txt")
            for token in (listed.keys() | ids.keys()) if ids is not None else ():
                assert ids is not None
                if listed.get(token) != ids.get(token) and not token.startswith("no token "):
                    raise ValueError(f"{directory}: the id of {token!r} is {listed.get(token)} in vocab.txt and "
                                     f"{ids.get(token)} in tokenizer.json")
            ids = ids or listed
        if ids is None:
            raise ValueError(f"{directory}: has neither vocab.txt nor tokenizer.json")
        if settings_file.exists():
            settings = read_json(settings_file)
            _require_only(settings_file, "setting", settings, do_basic_tokenize=True)
            added = settings.get("added_tokens_decoder") or {}
            for number, token in added.items() if isinstance(added, dict) else ():
                content = _special(settings_file, token.get("content") if isinstance(token, dict) else token)
                if str(ids.get(content)) != number:
                    raise ValueError(f"{settings_file}: added token {content!r} has the id {number}, the vocabulary "
                                     f"{ids.get(content)!r}")
            cleaning = Cleaning(_typed(settings_file, settings, "do_lower_case", bool, cleaning.lowercase),
                                _typed(settings_file, settings, "strip_accents", bool, cleaning.strip_accents),
                                _typed(settings_file, settings, "tokenize_chinese_chars", bool,
                                       cleaning.split_chinese), cleaning.max_word_length)
        try:
            return cls(ids, cleaning)
        except ValueError as error:
            raise ValueError(f"{directory}: {error}") from None

    # ---- text -> tokens ----------------------------------------------------------------------------------------------

    def word_pieces(self, word: str) -> list[tuple[int, int, int]] | None:
        """Cut a word greedily from the left: (id, start, end) of each piece. None if it cannot be cut into pieces."""
        if len(word) > self.cleaning.max_word_length:
            return None
        pieces, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = self.id_of.get(word[start:end] if start == 0 else "##" + word[start:end])
                if piece is not None:
                    pieces.append((piece, start, end))
                    start = end
                    break
            else:
                return None
        return pieces

    def tokenize(self, text: str) -> list[Token]:
        """Return tokens, each with the characters and the word that it came from; without [CLS] and [SEP]."""
        characters, origins = [], []
        for index, character in enumerate(text):
            for normalized in normalize_character(character, self.cleaning):
                characters.append(normalized)
                origins.append(index)
        tokens: list[Token] = []
        for number, match in enumerate(re.finditer(r"[^ ]+", "".join(characters))):
            pieces = self.word_pieces(match.group()) or [(self.unk_id, 0, len(match.group()))]
            for piece, start, end in pieces:
                begin = match.start()
                tokens.append(Token(piece, origins[begin + start], origins[begin + end - 1] + 1, number))
        return tokens

    # ---- what the tasks use ------------------------------------------------------------------------------------------

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of many texts. This is fast, since most words have been met before."""
        result = []
        for text in texts:
            ids: list[int] = []
            for word in _NOT_A_SPACE.sub("", text).split():
                ids += self._remembered[word]
            result.append(ids)
        return result

    def word_ids(self, words: list[str]) -> tuple[list[int], list[int]]:
        """Return the ids of a sentence given as words, and for each id the index of its word."""
        ids, owners = [], []
        for index, pieces in enumerate(self.ids(words)):
            ids += pieces
            owners += [index] * len(pieces)
        return ids, owners

    def build(self, first: Sequence[int], second: Sequence[int] | None = None, max_length: int | None = None
              ) -> tuple[list[int], list[int]]:
        """Build a sequence: [CLS] first [SEP], or [CLS] first [SEP] second [SEP]. MPNet has two [SEP] in the middle.

        Args:
            first, second: token ids without special tokens.
            max_length: of the sequence. Truncation takes from the longer sentence first.

        Returns:
            (input_ids, token_type_ids).
        """
        special = 2 if second is None else self.special_of_pair
        if max_length is not None:
            room = max_length - special
            if room < 0:
                raise ValueError(f"max_length is {max_length}; expected at least {special} for the special tokens")
            if second is None:
                first = first[:room]
            elif len(first) + len(second) > room:
                keep_first, keep_second = longest_first(len(first), len(second), room)
                first, second = first[:keep_first], second[:keep_second]
        input_ids = [self.cls_id, *first, self.sep_id]
        token_type_ids = [0] * len(input_ids)
        if second is not None:
            more = [*[self.sep_id] * (self.special.between - 1), *second, self.sep_id]
            input_ids += more
            token_type_ids += [1] * len(more)
        return input_ids, token_type_ids

    def encode(self, first: str, second: str | None = None, max_length: int | None = None) -> Encoding:
        """Encode one text or a pair, with offsets and word ids.

        Args:
            first, second: texts.
            max_length: of the sequence. Truncation takes from the longer sentence first.
        """
        sides = [self.tokenize(text) for text in (first, second) if text is not None]
        before = sum(map(len, sides))
        ids = [[token.id for token in side] for side in sides]
        input_ids, token_type_ids = self.build(ids[0], ids[1] if second is not None else None, max_length)
        offsets: list[tuple[int, int]] = [(0, 0)]
        words: list[int | None] = [None]
        for index, side in enumerate(sides):
            separators = 0 if index == 0 else self.special.between - 1  # before the sentence
            kept = token_type_ids.count(index) - (2 if index == 0 else self.special.between)
            offsets += [(0, 0)] * separators + [(token.start, token.end) for token in side[:kept]] + [(0, 0)]
            words += [None] * separators + [token.word for token in side[:kept]] + [None]
        truncated = before + (2 if second is None else self.special_of_pair) - len(input_ids)
        return Encoding(input_ids, token_type_ids, offsets, words, truncated)

    def save(self, directory: Path, max_length: int = 512):
        """Write vocab.txt, tokenizer_config.json and tokenizer.json, the files that other libraries look for.

        directory: of the model. max_length: tokens of a sequence, for those libraries.
        """
        directory = Path(directory)
        write_text(directory / "vocab.txt", "".join(f"{token}\n" for token in self.vocabulary))
        write_json(directory / "tokenizer_config.json", {
            "do_lower_case": self.cleaning.lowercase, "strip_accents": self.cleaning.strip_accents,
            "tokenize_chinese_chars": self.cleaning.split_chinese,
            "tokenizer_class": "MPNetTokenizer" if self.special is MPNET_TOKENS else "BertTokenizer",
            "model_max_length": max_length,
            **{f"{name}_token": getattr(self.special, name) for name in ("pad", "unk", "cls", "sep", "mask")}}, 2)
        complete = tokenizers.Tokenizer(tokenizers.models.WordPiece(
            {token: number for number, token in enumerate(self.vocabulary)}, unk_token="[UNK]",
            max_input_chars_per_word=self.cleaning.max_word_length))
        complete.normalizer = tokenizers.normalizers.BertNormalizer(
            lowercase=self.cleaning.lowercase, strip_accents=self.cleaning.strip_accents,
            handle_chinese_chars=self.cleaning.split_chinese)
        complete.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        complete.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in self.special.names])
        cls, sep = self.special.cls, self.special.sep
        types = "" if self.special is MPNET_TOKENS else ":1"
        complete.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {f'{sep} ' * self.special.between}$B{types} {sep}{types}",
            special_tokens=[(cls, self.cls_id), (sep, self.sep_id)])
        write_text(directory / "tokenizer.json", complete.to_str(pretty=True))
