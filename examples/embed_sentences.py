"""Embed sentences and find the nearest one. Run: python examples/embed_sentences.py [MODEL_DIRECTORY]"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.bert import FastBertModel
from minbert.pretrained import DEFAULT, fetch
from minbert.weights import load_encoder
from tasks.encoding import embed

SENTENCES = ["A man plays a guitar.", "Someone is making music.", "The train was late again.",
             "We waited at the station."]


def main(weights: str = DEFAULT) -> list[str]:
    encoder, tokenizer, _ = load_encoder(fetch(weights), FastBertModel)
    vectors = embed(encoder, tokenizer, SENTENCES)  # [4, H], each of length 1
    cosines = vectors @ vectors.T
    nearest = []
    for i, sentence in enumerate(SENTENCES):
        j = max((j for j in range(len(SENTENCES)) if j != i), key=lambda j: cosines[i, j])
        nearest.append(SENTENCES[j])
        print(f"{cosines[i, j]:.2f}  {sentence}  ->  {SENTENCES[j]}")
    return nearest


if __name__ == "__main__":
    main(*sys.argv[1:2])
