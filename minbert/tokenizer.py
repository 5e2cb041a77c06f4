"""WordPiece tokenization as BERT does it (Devlin et al. 2019; Wu et al. 2016, section 4.1), from scratch.

Text is cleaned and split into words (spaces, punctuation, Chinese characters); a word is cut greedily into the longest
pieces that the vocabulary has. `tokenize` does that with offsets; `ids` does it once for each different word and
remembers. A special token such as [SEP] in the text is that token, as in the reference.
"""
import functools
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from minbert.unicode_tables import CONTROLS, MARKS, PUNCTUATION

MAX_CHARACTERS_PER_WORD = 100  # a longer word is [UNK], as in the reference
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
# Python splits at these control characters, BERT removes them: "a\x0bb" is one word.
_NOT_A_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_CHINESE = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
            (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


@functools.lru_cache(maxsize=1 << 16)
def normalize_character(character: str, lowercase: bool) -> str:
    """What BERT's cleaning makes of one character: nothing, itself, its base letter, or (between spaces) its own word.

    lowercase: also strips accents, as the uncased models were trained.
    """
    code = ord(character)
    if character in "\t\n\r":
        return " "
    if code in CONTROLS:
        return ""
    if character.isspace():
        return " "
    chinese = any(first <= code <= last for first, last in _CHINESE)
    if lowercase:
        decomposed = unicodedata.normalize("NFD", character)
        character = "".join(c.lower() for c in decomposed if ord(c) not in MARKS)
    separated = "".join(f" {c} " if ord(c) in PUNCTUATION else c for c in character)
    return f" {separated} " if chinese else separated


@dataclass
class Token:
    id: int
    start: int  # characters [start, end) of the original text
    end: int
    word: int  # index of the word it is a piece of


@dataclass
class Encoding:
    """One sequence, or a pair in one sequence, with [CLS] and [SEP]."""

    input_ids: list[int]
    token_type_ids: list[int]  # 0 up to the first [SEP], 1 after it
    offsets: list[tuple[int, int]]  # characters of the sentence the token came from; (0, 0) for [CLS] and [SEP]
    word_ids: list[int | None]  # word in its own sentence; None for [CLS] and [SEP]
    truncated: int  # tokens that max_length cut off

    @property
    def attention_mask(self) -> list[int]:
        return [1] * len(self.input_ids)


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each sentence stay when both must fit into `room`: the longer one gives way first."""
    short, long = sorted((first, second))
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short, long = room // 2, room - room // 2
    return (short, long) if first <= second else (long, short)


class _WordMemory(dict):
    """Raw word -> ids, worked out at the first sight: a word is normalised alike wherever it stands."""

    LIMIT = 1_000_000  # words; a corpus of random strings must not fill the memory

    def __init__(self, tokenize):
        super().__init__()
        self.tokenize = tokenize

    def __missing__(self, word: str) -> list[int]:
        if len(self) >= self.LIMIT:
            self.clear()
        ids = self[word] = [token.id for token in self.tokenize(word)]
        return ids


class BertTokenizer:
    def __init__(self, vocabulary: list[str], lowercase: bool = True):
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.id_of = {token: index for index, token in enumerate(vocabulary)}
        missing = [token for token in SPECIAL_TOKENS if token not in self.id_of]
        if missing:
            raise ValueError(f"the vocabulary of {len(vocabulary)} tokens lacks {', '.join(missing)}")
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (self.id_of[t] for t in SPECIAL_TOKENS)
        self._remembered = _WordMemory(self.tokenize)

    @classmethod
    def load(cls, directory: Path) -> "BertTokenizer":
        """Reads vocab.txt (or tokenizer.json) and, where present, tokenizer_config.json of a model directory."""
        directory = Path(directory)
        vocabulary, settings = directory / "vocab.txt", directory / "tokenizer_config.json"
        lowercase = True
        try:
            if settings.exists():
                lowercase = bool(json.loads(settings.read_text(encoding="utf-8")).get("do_lower_case", True))
            if vocabulary.exists():
                tokens = vocabulary.read_text(encoding="utf-8").split("\n")
                tokens = tokens[:-1] if tokens[-1] == "" else tokens
            elif (directory / "tokenizer.json").exists():
                saved = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
                ids = saved["model"]["vocab"]
                tokens = sorted(ids, key=ids.get)
                lowercase = bool((saved.get("normalizer") or {}).get("lowercase", lowercase))
            else:
                raise ValueError(f"{directory}: has neither vocab.txt nor tokenizer.json")
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, AttributeError) as error:
            raise ValueError(f"{directory}: the tokenizer's files cannot be read ({error!r})") from None
        try:
            return cls([token.rstrip("\r") for token in tokens], lowercase)
        except ValueError as error:
            raise ValueError(f"{directory}: {error}") from None

    # ---- text -> tokens ----------------------------------------------------------------------------------------------

    def word_pieces(self, word: str) -> list[tuple[int, int, int]] | None:
        """Greedy longest match from the left: (id, start, end) of each piece; None where the word cannot be cut so."""
        if len(word) > MAX_CHARACTERS_PER_WORD:
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

    def _tokenize_plain(self, text: str, offset: int, tokens: list[Token]):
        """Appends the tokens of a text without special tokens; `offset` is where it begins in the whole text."""
        characters, origins = [], []
        for index, character in enumerate(text):
            for normalized in normalize_character(character, self.lowercase):
                characters.append(normalized)
                origins.append(offset + index)
        for match in re.finditer(r"[^ ]+", "".join(characters)):
            word = tokens[-1].word + 1 if tokens else 0
            pieces = self.word_pieces(match.group()) or [(self.unk_id, 0, len(match.group()))]
            for piece, start, end in pieces:
                begin = match.start()
                tokens.append(Token(piece, origins[begin + start], origins[begin + end - 1] + 1, word))

    def tokenize(self, text: str) -> list[Token]:
        """Tokens, each with the characters and the word that it came from; without [CLS] and [SEP]."""
        tokens: list[Token] = []
        offset = 0
        for index, part in enumerate(_SPECIAL.split(text)):
            if index % 2:  # the pattern's group: a special token
                tokens.append(Token(self.id_of[part], offset, offset + len(part),
                                    tokens[-1].word + 1 if tokens else 0))
            else:
                self._tokenize_plain(part, offset, tokens)
            offset += len(part)
        return tokens

    # ---- what the tasks use ------------------------------------------------------------------------------------------

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The same tokens' ids, of many texts: faster, since most words have been met before."""
        found = []
        for text in texts:
            ids: list[int] = []
            for word in _NOT_A_SPACE.sub("", text).split():
                ids += self._remembered[word]
            found.append(ids)
        return found

    def word_ids(self, words: list[str]) -> tuple[list[int], list[int]]:
        """Ids of a sentence given as words, and for each id the index of its word."""
        ids, owners = [], []
        for index, pieces in enumerate(self.ids(words)):
            ids += pieces
            owners += [index] * len(pieces)
        return ids, owners

    def build(self, first: Sequence[int], second: Sequence[int] | None = None, max_length: int | None = None
              ) -> tuple[list[int], list[int]]:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]: (input_ids, token_type_ids), cut to max_length."""
        special = 2 if second is None else 3
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
            input_ids += [*second, self.sep_id]
            token_type_ids += [1] * (len(second) + 1)
        return input_ids, token_type_ids

    def encode(self, first: str, second: str | None = None, max_length: int | None = None) -> Encoding:
        """One text or a pair, with offsets and word ids. Truncation takes from the longer sentence first."""
        sides = [self.tokenize(text) for text in (first, second) if text is not None]
        before = sum(map(len, sides))
        ids = [[token.id for token in side] for side in sides]
        input_ids, token_type_ids = self.build(ids[0], ids[1] if second is not None else None, max_length)
        offsets: list[tuple[int, int]] = [(0, 0)]
        words: list[int | None] = [None]
        for index, side in enumerate(sides):
            kept = token_type_ids.count(index) - (2 if index == 0 else 1)
            offsets += [(token.start, token.end) for token in side[:kept]] + [(0, 0)]
            words += [token.word for token in side[:kept]] + [None]
        truncated = before + len(sides) + 1 - len(input_ids)
        return Encoding(input_ids, token_type_ids, offsets, words, truncated)

    def save(self, directory: Path):
        """Writes vocab.txt, tokenizer_config.json and tokenizer.json, the files other libraries look for."""
        directory = Path(directory)
        (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in self.vocabulary), encoding="utf-8")
        settings = {"do_lower_case": self.lowercase, "tokenizer_class": "BertTokenizer", "model_max_length": 512,
                    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
                    "mask_token": "[MASK]"}
        (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        complete = tokenizers.Tokenizer(tokenizers.models.WordPiece(
            self.id_of, unk_token="[UNK]", max_input_chars_per_word=MAX_CHARACTERS_PER_WORD))
        complete.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=self.lowercase)
        complete.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        complete.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
        complete.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", self.cls_id), ("[SEP]", self.sep_id)])
        complete.save(str(directory / "tokenizer.json"))
