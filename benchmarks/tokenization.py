"""Tokenization: sentences to ids, ours (the fast path, and from scratch) against transformers' fast tokenizer and its
pure Python one."""
from pathlib import Path

from benchmarks.measure import Comparison, compare
from minbert.pretrained import fetch
from minbert.tokenizer import BertTokenizer


def run(sentences: list[str], weights: str, repeats: int) -> list[Comparison]:
    import transformers
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    directory = Path(fetch(weights))
    fast = transformers.BertTokenizerFast.from_pretrained(directory)
    slow = BertTokenizerLegacy(vocab_file=str(directory / "vocab.txt"))

    def from_scratch():
        ours = BertTokenizer.load(directory)  # anew: it remembers words, and every round should learn them again
        return [ours.ids_from_scratch(sentence) for sentence in sentences]

    ours = BertTokenizer.load(directory)
    quick = compare(f"tokenization, {len(sentences):,} sentences", {
        "ours, fast": lambda: ours.ids(sentences),
        "transformers, fast": lambda: fast(sentences, add_special_tokens=False, return_attention_mask=False,
                                           return_token_type_ids=False)["input_ids"]}, repeats)
    plain = compare(f"tokenization from scratch, {len(sentences):,} sentences", {
        "ours, from scratch": from_scratch,
        "transformers, slow": lambda: [slow.convert_tokens_to_ids(slow.tokenize(sentence)) for sentence in sentences],
        "transformers, fast": lambda: fast(sentences, add_special_tokens=False)["input_ids"]}, repeats)
    return [quick, plain]
