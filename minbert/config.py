"""The shape of a BERT: every number that fixes the size of a weight, and the two dropout rates.

Field names and defaults are those of Hugging Face's config.json (BERT-base), so that a model directory made by either
side is read by the other. Fields we do not use are kept in `other` and written back.
"""
import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

# Activations by the names config.json gives them; "gelu" is the exact one (erf), as BERT was trained.
LARGEST = 100_000_000  # of a size: a larger one is a mistake
FIRST_MPNET_POSITION = 2  # rows of MPNet's position table before that of the first token
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")


@dataclass(frozen=True)
class SentenceSettings:
    """Say how sentence vectors are made of hidden states. sentence-transformers' folders declare it.

    >>> SentenceSettings().pooling
    'mean'
    """

    pooling: str = "mean"
    normalize: bool = True
    max_length: int = 256  # tokens of a sentence, special tokens included; longer ones are cut
    refused: str = ""  # why this library cannot make the vectors that a folder declares; empty if it can


@dataclass
class BertConfig:
    """Hold a model's shape.

    >>> BertConfig(hidden_size=384, num_attention_heads=12).intermediate_size
    3072
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    model_type: str = "bert"  # or "mpnet": see mpnet.py
    relative_attention_num_buckets: int = 32  # of MPNet; BERT has none
    other: dict = field(default_factory=dict)
    sentences: SentenceSettings = SentenceSettings()  # not of config.json

    def __post_init__(self):
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                     "max_position_embeddings", "type_vocab_size", "relative_attention_num_buckets"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= LARGEST:
                raise ValueError(f"config: {name} is {str(value)[:60]}; expected a whole number from 1 to {LARGEST:,}")
        if self.model_type not in ("bert", "mpnet"):
            raise ValueError(f"config: model_type is {self.model_type!r}; expected 'bert' or 'mpnet'")
        if self.relative_attention_num_buckets < 4:
            raise ValueError(f"config: relative_attention_num_buckets is {self.relative_attention_num_buckets}; "
                             "expected 4 or more")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"config: hidden_size {self.hidden_size} does not divide into "
                             f"num_attention_heads {self.num_attention_heads} equal heads")
        if not isinstance(self.hidden_act, str) or self.hidden_act not in ACTIVATIONS:
            raise ValueError(f"config: hidden_act is {self.hidden_act!r}; expected one of {', '.join(ACTIVATIONS)}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if type(getattr(self, name)) not in (int, float) or not 0 <= getattr(self, name) < 1:
                raise ValueError(f"config: {name} is {getattr(self, name)!r}; expected 0 <= p < 1")
        for name in ("initializer_range", "layer_norm_eps"):
            if type(getattr(self, name)) not in (int, float) or not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"config: {name} is {getattr(self, name)!r}; expected 0 or more")

    @classmethod
    def load(cls, path: Path) -> "BertConfig":
        """Read a config.json. Raise ValueError for a file that is not a BERT's or an MPNet's configuration.

        MPNet's files count the rows of the position table, we count positions: two fewer.
        """
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{path}: cannot be read as a JSON configuration ({str(error).splitlines()[0]})") from None
        if not isinstance(values, dict):
            raise ValueError(f"{path}: found a JSON {type(values).__name__}; expected an object")
        if values.get("position_embedding_type", "absolute") != "absolute":
            raise ValueError(f"{path}: position_embedding_type is {values['position_embedding_type']!r}; "
                             "expected 'absolute'")
        known = {f.name for f in dataclasses.fields(cls)} - {"other", "sentences"}
        try:
            config = cls(**{name: values[name] for name in known & values.keys()},
                         other={name: value for name, value in values.items() if name not in known})
            if config.model_type == "mpnet":
                config = dataclasses.replace(
                    config, max_position_embeddings=config.max_position_embeddings - FIRST_MPNET_POSITION)
            return config
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def to_json(self) -> str:
        """Write the text of a config.json that transformers reads."""
        values = dataclasses.asdict(self)
        values.pop("sentences")
        values = {**values.pop("other"), **values}
        if self.model_type == "mpnet":
            values["max_position_embeddings"] += FIRST_MPNET_POSITION
            del values["type_vocab_size"]
        else:
            del values["relative_attention_num_buckets"]
        return json.dumps(values, indent=2, sort_keys=True) + "\n"
