"""Fine-tune a sentiment head with a plain loop: the lesson's model, the lesson's AdamW, no trainer.

Run: python examples/finetune_in_ten_lines.py [MODEL_DIRECTORY]
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpora.examples import Example
from minbert.adamw import AdamW
from minbert.bert import BertModel
from minbert.pretrained import DEFAULT, fetch
from minbert.weights import load_encoder
from tasks.options import SentimentOptions
from tasks.sentiment import Sentiment

REVIEWS = [("a wonderful film", 1), ("utterly boring", 0), ("i loved every minute", 1), ("a waste of time", 0)]


def main(weights: str = DEFAULT, steps: int = 20) -> list[float]:
    encoder, tokenizer, _ = load_encoder(fetch(weights), BertModel)
    task = Sentiment("reviews", tokenizer, encoder.config, SentimentOptions(classes=2, pooling="mean", dropout=0.0))
    examples = [Example(str(i), (text,), label) for i, (text, label) in enumerate(REVIEWS)]
    task.tokenize(examples)
    batch = task.collate(examples)
    optimizer = AdamW([*encoder.parameters(), *task.parameters()], lr=1e-4)
    losses = []
    for step in range(steps):
        loss = task.loss(encoder, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 5 == 0:
            print(f"step {step:2}  loss {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT)
