"""The attention weights of a few dev sentences, for a run's report."""
from collections.abc import Sequence
from typing import Any

import torch

from corpora.examples import Example
from minbert.batch import TokenBatch
from minbert.bert import BertModel
from tasks.encoding import evaluating
from tasks.task import Task

LONGEST = 20  # tokens: a wider table cannot be read
NUMBERS = 120_000  # of a sentence, in all layers and heads: the report stays small


@torch.inference_mode()
def attention_of(task: Task, encoder: BertModel, examples: Sequence[Example], count: int) -> list[dict[str, Any]]:
    """Return the weights for the first sentence of some examples, short enough to be shown.

    Args:
        task, encoder: as trained. A task with layers of its own is shown with them.
        examples: tokenized.
        count: at most so many sentences.

    Returns:
        Of each sentence: the task's name, the tokens, and weights[layer][head][query][key] in hundredths.
    """
    config = encoder.config
    room = int((NUMBERS / (config.num_hidden_layers * config.num_attention_heads)) ** 0.5)
    longest = min(LONGEST, room, task.max_length)
    # Among the first thousand: a large file need not be read to its end.
    sequences = [task.tokenizer.build(examples[index].ids[0]) for index in range(min(len(examples), 1000))]
    chosen = [sequence for sequence in sequences if 6 <= len(sequence[0]) <= longest][:count]
    encoder = task.view(encoder)
    device = encoder.embeddings.word_embeddings.weight.device
    result = []
    with evaluating(encoder, task):
        for sequence in chosen:
            tokens = TokenBatch.from_sequences([sequence], task.tokenizer.pad_id).to(device)
            output = encoder(tokens.input_ids, tokens.attention_mask, tokens.token_type_ids, output_attentions=True)
            assert output.attentions is not None
            weights = torch.stack([layer[0] for layer in output.attentions])  # [layers, A, T, T]
            result.append({"task": task.name, "tokens": [task.tokenizer.vocabulary[number] for number in sequence[0]],
                           "weights": (100 * weights.float()).round().int().tolist()})
    return result
