"""The shape of a BERT: every number that fixes the size of a weight, and the two dropout rates.

Field names and defaults are those of Hugging Face's config.json (BERT-base), so that a model directory made by either
side is read by the other. Fields we do not use are kept in `other` and written back.
"""
import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

# Activations by the names config.json gives them; "gelu" is the exact one (erf), as BERT was trained.
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")


@dataclass
class BertConfig:
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
    other: dict = field(default_factory=dict)

    def __post_init__(self):
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                     "max_position_embeddings", "type_vocab_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"config: {name} is {value!r}; expected a whole number of at least 1")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"config: hidden_size {self.hidden_size} does not divide into "
                             f"num_attention_heads {self.num_attention_heads} equal heads")
        if self.hidden_act not in ACTIVATIONS:
            raise ValueError(f"config: hidden_act is {self.hidden_act!r}; expected one of {', '.join(ACTIVATIONS)}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"config: {name} is {getattr(self, name)!r}; expected 0 <= p < 1")

    @classmethod
    def load(cls, path: Path) -> "BertConfig":
        """Reads a config.json. Raises ValueError for a file that is not a BERT's configuration."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}: cannot be read as a JSON configuration ({error})") from None
        if not isinstance(values, dict):
            raise ValueError(f"{path}: found a JSON {type(values).__name__}; expected an object")
        kind = values.get("model_type", "bert")
        if kind != "bert":
            raise ValueError(f"{path}: model_type is {kind!r}; expected 'bert'")
        if values.get("position_embedding_type", "absolute") != "absolute":
            raise ValueError(f"{path}: position_embedding_type is {values['position_embedding_type']!r}; "
                             "expected 'absolute'")
        known = {f.name for f in dataclasses.fields(cls)} - {"other"}
        try:
            return cls(**{name: values[name] for name in known & values.keys()},
                       other={name: value for name, value in values.items() if name not in known})
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def to_json(self) -> str:
        """The text of a config.json that transformers reads."""
        values = dataclasses.asdict(self)
        values = {**values.pop("other"), "model_type": "bert", **values}
        return json.dumps(values, indent=2, sort_keys=True) + "\n"
