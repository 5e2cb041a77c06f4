"""The kinds of tasks: the only list of them. Their options are listed in options.py, under the same names."""
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.glue import Glue
from tasks.inference import Inference, InferenceTriplets
from tasks.masked import MaskedWords
from tasks.options import OPTIONS, TaskOptions
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
    "masked_words": MaskedWords,
    "glue": Glue,
}
assert TASKS.keys() == OPTIONS.keys()


def make_task(kind: str, name: str, tokenizer: BertTokenizer, config: BertConfig, options: TaskOptions) -> Task:
    """Make a task.

    Args:
        kind: a key of TASKS.
        name: of the task, in the recipe.
        tokenizer, config: of the encoder.
        options: of the class that OPTIONS names for the kind.
    """
    return TASKS[kind](name, tokenizer, config, options)
