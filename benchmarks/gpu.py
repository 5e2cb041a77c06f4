"""One epoch of three tasks on an accelerator: a BERT-base-shaped encoder, bfloat16, PCGrad; beside transformers.

    python -m benchmarks.gpu                              # the whole epoch, about 156,000 examples
    python -m benchmarks.gpu --steps 100                  # as many steps of each contestant
    python -m benchmarks.gpu --device cpu --shape small --examples 0.001 --steps 2     # a check of this script

Weights are random and sentences are random words at the lengths of the real sets: the arithmetic is the same. Every
step has a batch of each task, in such sizes that one epoch sees every set once.
"""
import random
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from benchmarks.contestants import RECIPE, PeerModel, mean_of, padded
from benchmarks.floor import flops
from corpora.examples import Example
from corpora.files import write_json
from corpora.flags import Parser, positive
from engine.bert import FastBertModel
from minbert.config import BertConfig
from minbert.pretrained import DEFAULT, fetch
from minbert.tokenizer import BertTokenizer
from training.data import TaskData
from training.engines import make_engine
from training.model import build_model
from training.recipe import Stage, load_recipe
from training.step import StageSteps, StepState

SHAPES = {"base": BertConfig(), "small": BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
                                                    intermediate_size=128)}
# Examples, median tokens of a sentence (counted on the real sets), sentences of an example, and batch size.
SETS = {"sst": (8_544, 22, 1, 8), "para": (141_498, 13, 2, 128), "sts": (6_040, 13, 2, 6)}
PEAK_TFLOPS = 989.0  # of an H100 or H200 in bfloat16, dense (NVIDIA's data sheet)


def generated(share: float, tokenizer: BertTokenizer) -> dict[str, TaskData]:
    """Token ids at real lengths: random words, since what they say does not matter here."""
    rng = random.Random(0)
    data = {}
    for name, (count, median, sentences, batch_size) in SETS.items():
        examples = []
        for row in range(max(2 * batch_size, round(count * share))):
            ids = tuple([rng.randrange(5, len(tokenizer.vocabulary))
                         for _ in range(min(120, max(3, round(rng.lognormvariate(0, 0.45) * median))))]
                        for _ in range(sentences))
            label = {"sst": row % 5, "para": row % 2, "sts": rng.uniform(0, 5)}[name]
            examples.append(Example(str(row), ("",) * sentences, label, ids))
        data[name] = TaskData(examples, [], [])
    return data


def wait(device: torch.device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def ours(config: BertConfig, tokenizer: BertTokenizer, data: dict[str, TaskData], device: torch.device, steps: int,
         combine: str) -> tuple[float, int, float]:
    """(seconds, tokens, FLOPs) of `steps` steps after a warm-up, or of an epoch for steps 0."""
    recipe = load_recipe(RECIPE)
    torch.manual_seed(0)
    model = build_model(recipe, config, FastBertModel(config), tokenizer).to(device)
    stage = Stage(tasks=list(SETS), epochs=10**6, batch_size={name: row[-1] for name, row in SETS.items()},
                  steps_per_epoch="longest", combine=combine, schedule="constant", warmup=0.0)
    engine = make_engine("engine")
    stepper = StageSteps(stage, model, list(SETS), data, "gpu", engine, device)
    stepper.training_mode()
    bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    engine.use("bfloat16" if bfloat16 else "float32", model.encoder)
    state = StepState()
    for _ in range(5):
        stepper.take(state)
    seen: list[int] = []
    for batches in stepper.batches.values():
        def counted(indices, collate=batches.collate):
            batch = collate(indices)
            seen.extend(batch.tokens.attention_mask.sum(dim=1).tolist())
            return batch

        batches.collate = counted  # type: ignore[method-assign]
    wait(device)
    started = time.perf_counter()
    for _ in range(steps or stepper.per_epoch):
        stepper.take(state)
    wait(device)
    return time.perf_counter() - started, sum(seen), flops(config, seen)


def peer(config: BertConfig, tokenizer: BertTokenizer, data: dict[str, TaskData], device: torch.device, steps: int,
         by_length: bool) -> tuple[float, int, float]:
    """transformers' BertModel with SDPA, the plain sum of the losses, fused AdamW. Padding is not counted."""
    import transformers

    torch.manual_seed(0)
    encoder = transformers.BertModel(transformers.BertConfig(  # type: ignore[call-arg]
        hidden_size=config.hidden_size, num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads, intermediate_size=config.intermediate_size,
        attn_implementation="sdpa"), add_pooling_layer=False)

    def encode(ids, mask):
        return mean_of(encoder(input_ids=ids, attention_mask=mask).last_hidden_state, mask)

    tasks = build_model(load_recipe(RECIPE), config, FastBertModel(config), tokenizer).tasks_by_name()
    models: Any = torch.nn.ModuleDict({name: PeerModel(encoder, encode, name, config) for name in SETS})
    models.to(device).train()
    optimizer = torch.optim.AdamW(models.parameters(), lr=2e-5, fused=True)
    autocast = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()
    batches = {}
    for name, (*_, size) in SETS.items():
        examples = data[name].train
        order = random.Random(0).sample(examples, len(examples))
        if by_length:
            order.sort(key=tasks[name].length)
        parts = [order[start:start + size] for start in range(0, len(order), size)]
        random.Random(1).shuffle(parts)
        batches[name] = parts
    seen: list[int] = []

    def step(number: int):
        optimizer.zero_grad()
        for name, parts in batches.items():
            sides, labels = padded(tasks[name], parts[number % len(parts)])
            for _, mask in sides:
                seen.extend(mask.sum(dim=1).tolist())
            sides = [(ids.to(device, non_blocking=True), mask.to(device, non_blocking=True)) for ids, mask in sides]
            with autocast:
                loss = models[name].loss(sides, labels.to(device))
            loss.backward()
        torch.nn.utils.clip_grad_norm_(models.parameters(), 1.0)
        optimizer.step()

    for number in range(5):
        step(number)
    seen.clear()
    wait(device)
    started = time.perf_counter()
    for number in range(steps or max(map(len, batches.values()))):
        step(number)
    wait(device)
    return time.perf_counter() - started, sum(seen), flops(config, seen)


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=positive, default=0, help="of each contestant (default: the whole epoch)")
    parser.add_argument("--examples", type=float, default=1.0, help="share of the real sets' sizes")
    parser.add_argument("--shape", choices=SHAPES, default="base")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--peak_tflops", type=float, default=PEAK_TFLOPS)
    parser.add_argument("--weights", default=DEFAULT, help="whose vocabulary to use")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu.json"))
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("error: torch finds no GPU here; --device cpu --shape small checks the script", file=sys.stderr)
        return 2
    device, config = torch.device(options.device), SHAPES[options.shape]
    tokenizer = BertTokenizer.load(fetch(options.weights))
    config.vocab_size = max(config.vocab_size, len(tokenizer.vocabulary))
    data = generated(options.examples, tokenizer)
    torch.set_float32_matmul_precision("high")
    contestants = {
        "ours, PCGrad": lambda: ours(config, tokenizer, data, device, options.steps, "pcgrad"),
        "ours, plain sum": lambda: ours(config, tokenizer, data, device, options.steps, "sum"),
        "transformers, random": lambda: peer(config, tokenizer, data, device, options.steps, False),
        "transformers, sorted": lambda: peer(config, tokenizer, data, device, options.steps, True)}
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, {options.shape} shape, torch {torch.__version__}\n\n"
          "| contestant | seconds | tokens/s | MFU |\n|---|---|---|---|")
    found = {}
    for contestant, run in contestants.items():
        seconds, tokens, work = run()
        found[contestant] = {"seconds": seconds, "tokens_per_second": tokens / seconds,
                             "mfu": work / seconds / options.peak_tflops / 1e12}
        print("| {} | {:.1f} | {:,.0f} | {:.1%} |".format(contestant, *found[contestant].values()), flush=True)
    write_json(options.out, {"device": name, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
