"""Tokenization: sentences to ids, ours (pure Python that remembers words; here it starts anew each round) against
transformers' fast tokenizer (Rust) and its pure Python one."""
from pathlib import Path

from benchmarks.measure import Comparison, compare
from minbert.pretrained import fetch
from minbert.tokenizer import BertTokenizer


def run(sentences: list[str], weights: str, repeats: int) -> Comparison:
    import transformers
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    directory = Path(fetch(weights))
    fast = transformers.AutoTokenizer.from_pretrained(directory, use_fast=True)
    slow = BertTokenizerLegacy(vocab_file=str(directory / "vocab.txt"))

    def ours():
        tokenizer = BertTokenizer.load(directory)  # anew: every round should learn its words again
        return tokenizer.ids(sentences)

    used = BertTokenizer.load(directory)
    used.ids(sentences)
    return compare(f"tokenization, {len(sentences):,} sentences", {
        "ours, first pass": ours,
        "transformers, fast": lambda: fast(sentences, add_special_tokens=False, return_attention_mask=False,
                                           return_token_type_ids=False)["input_ids"],
        "transformers, slow": lambda: [slow.convert_tokens_to_ids(slow.tokenize(sentence)) for sentence in sentences],
        "ours, words known": lambda: used.ids(sentences)}, repeats)
