"""What is learned: one file a task. TASKS is the only list of them."""
import dataclasses
import difflib
import inspect

from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.glue import Glue
from tasks.inference import Inference, InferenceTriplets
from tasks.pair import PairTask
from tasks.paraphrase import Paraphrase
from tasks.phrases import Phrases
from tasks.sentiment import Sentiment
from tasks.similarity import Similarity
from tasks.task import Task

TASKS: dict[str, type[Task]] = {
    "sentiment": Sentiment,
    "paraphrase": Paraphrase,
    "similarity": Similarity,
    "inference": Inference,
    "inference_triplets": InferenceTriplets,
    "phrases": Phrases,
    "glue": Glue,
}


def option_defaults(kind: type[Task]) -> dict:
    """The options that a recipe may set for a task of this class, with their defaults."""
    options = {}
    for cls in reversed(kind.__mro__):
        if "__init__" not in cls.__dict__ or not issubclass(cls, Task):
            continue
        for name, parameter in inspect.signature(cls.__init__).parameters.items():
            if parameter.default is not parameter.empty:
                options[name] = parameter.default
    if issubclass(kind, PairTask):
        options |= dataclasses.asdict(kind.default_choices)
    return options


def make_task(kind: str, name: str, tokenizer: BertTokenizer, config: BertConfig, options: dict) -> Task:
    """kind: a key of TASKS. Raises ValueError for an unknown kind, option, or value of an option."""
    if kind not in TASKS:
        raise ValueError(f"task {name}: unknown kind '{kind}'; known: {', '.join(TASKS)}{near(kind, TASKS)}")
    known = option_defaults(TASKS[kind])
    for option, value in options.items():
        if option not in known:
            raise ValueError(f"task {name}: unknown option '{option}'; known: {', '.join(known)}{near(option, known)}")
        expected = type(known[option])
        if not (isinstance(value, expected) or (expected is float and type(value) is int)):
            raise ValueError(f"task {name}: {option} is {value!r}; expected {expected.__name__}")
    return TASKS[kind](name, tokenizer, config, **options)


def near(word: str, known) -> str:
    """" (did you mean 'x'?)" where something known is close, else nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""
