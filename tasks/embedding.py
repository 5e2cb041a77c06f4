"""Sentence vectors without a task: sentences in, one vector each out (Reimers & Gurevych 2019, section 3).

Sentences are encoded by length, in batches of a token budget, so that padding costs next to nothing.
"""
import numpy as np
import torch
import torch.nn.functional as F

from minbert.bert import BertModel
from minbert.tokenizer import BertTokenizer
from tasks.pooling import CLS_POOLINGS, pool
from tasks.task import TOKENS_PER_BATCH, TokenBatch, cut


@torch.inference_mode()
def embed(encoder: BertModel, tokenizer: BertTokenizer, sentences: list[str], pooling: str = "mean",
          max_length: int = 256, normalize: bool = True, tokens_per_batch: int = TOKENS_PER_BATCH) -> np.ndarray:
    """[n, H] float32, in the order of the sentences. normalize: to length 1, so that a dot product is a cosine."""
    was_training = encoder.training
    encoder.eval()
    device = encoder.embeddings.word_embeddings.weight.device
    limit = min(max_length, encoder.config.max_position_embeddings)
    sequences = [tokenizer.build(ids, max_length=limit) for ids in tokenizer.ids(sentences)]
    lengths = [len(input_ids) for input_ids, _ in sequences]
    order = sorted(range(len(sequences)), key=lengths.__getitem__)
    vectors = np.empty((len(sequences), encoder.config.hidden_size), dtype=np.float32)
    for chosen in cut(order, lengths, 0, tokens_per_batch):
        tokens = TokenBatch.from_sequences([sequences[index] for index in chosen], tokenizer.pad_id).to(device)
        output = encoder(tokens.input_ids, tokens.attention_mask, tokens.token_type_ids, packing=tokens.packing,
                         cls_only=pooling in CLS_POOLINGS)
        pooled = pool(output, tokens.attention_mask, pooling)
        vectors[chosen] = (F.normalize(pooled, dim=1) if normalize else pooled).float().cpu().numpy()
    encoder.train(was_training)
    return vectors
