"""Show which tokens a head looks at. Run: python examples/attention_weights.py [MODEL_DIRECTORY]"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from minbert.bert import BertModel
from minbert.pretrained import DEFAULT, fetch
from minbert.weights import load_encoder

SENTENCE = "the cat sat on the mat"
LAYER, HEAD = 0, 0


def main(weights: str = DEFAULT) -> torch.Tensor:
    encoder, tokenizer, _ = load_encoder(fetch(weights), BertModel)
    encoder.eval()
    input_ids, _ = tokenizer.build(tokenizer.ids([SENTENCE])[0])
    output = encoder(torch.tensor([input_ids]), output_attentions=True)
    weights_of_head = output.attentions[LAYER][0, HEAD]  # [T, T]: row i holds what token i gives to all tokens
    tokens = [tokenizer.vocabulary[i] for i in input_ids]
    for token, row in zip(tokens, weights_of_head, strict=True):
        best = int(row.argmax())
        print(f"{token:>10} looks most at {tokens[best]:<10} {row[best]:.2f}")
    return weights_of_head


if __name__ == "__main__":
    main(*sys.argv[1:2])
