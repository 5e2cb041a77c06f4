"""Does every known mistake make a test fail? Plant one line at a time, run the tests that should notice.

    python tests/mutants.py [--part N --of 3] [NAME ...]

A mutant is (name, file, text as it is, text with the mistake, tests to run). Each runs in a copy of the tree, and in a
process of its own that is forked from this one: torch and other libraries, which take seconds to import, are there
already. This process imports nothing of ours. The exit status is 1 if a mutant survives, and 2 if a text is not found
exactly once in its file.
"""
import argparse
import importlib
import multiprocessing
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("minbert", "engine", "corpora", "tasks", "alignment", "training", "report", "benchmarks", "tests", "recipes",
          "train_multitask.py", "pretrain_tft.py", "pyproject.toml", "requirements.txt", "README.md")


@dataclass
class Mutant:
    name: str
    file: str
    before: str
    after: str
    tests: str  # arguments of pytest


MUTANTS = [
    # ---- attention, embeddings, layer
    Mutant("attention without 1 / sqrt(D)", "minbert/attention.py", " / math.sqrt(query.shape[-1])", "",
           "tests/test_attention.py"),
    Mutant("attention mask inverted", "minbert/attention.py", "masked_fill(~mask[", "masked_fill(mask[",
           "tests/test_attention.py"),
    Mutant("attention dropout left out", "minbert/attention.py", "F.dropout(weights, dropout_p) @ value",
           "weights @ value", "tests/test_dropout.py"),
    Mutant("attention dropout in evaluation", "minbert/attention.py", "self.dropout_p if self.training else 0.0",
           "self.dropout_p", "tests/test_dropout.py"),
    Mutant("heads split in the wrong order", "minbert/attention.py",
           "projected.unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2)",
           "projected.unflatten(-1, (-1, self.num_attention_heads)).permute(0, 3, 1, 2)", "tests/test_attention.py"),
    Mutant("embedding dropout left out", "minbert/bert.py",
           "return F.dropout(self.LayerNorm(total), self.dropout_p, self.training)", "return self.LayerNorm(total)",
           "tests/test_dropout.py"),
    Mutant("embedding dropout before LayerNorm", "minbert/bert.py",
           "F.dropout(self.LayerNorm(total), self.dropout_p, self.training)",
           "self.LayerNorm(F.dropout(total, self.dropout_p, self.training))", "tests/test_dropout.py"),
    Mutant("hidden dropout left out of AddNorm", "minbert/bert.py",
           "residual + F.dropout(self.dense(x), self.dropout_p, self.training)", "residual + self.dense(x)",
           "tests/test_dropout.py"),
    Mutant("dropout of the residual", "minbert/bert.py",
           "residual + F.dropout(self.dense(x), self.dropout_p, self.training)",
           "F.dropout(residual + self.dense(x), self.dropout_p, self.training)", "tests/test_dropout.py"),
    Mutant("no residual", "minbert/bert.py", "self.LayerNorm(residual + F", "self.LayerNorm(F", "tests/test_bert.py"),
    Mutant("no segment embeddings", "minbert/bert.py",
           "self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)",
           "self.word_embeddings(input_ids)", "tests/test_bert.py"),
    Mutant("pooler without tanh", "minbert/bert.py", "self.dense(first).tanh()", "self.dense(first)",
           "tests/test_bert.py"),
    Mutant("approximate GELU", "minbert/bert.py", '"gelu": F.gelu', '"gelu": _TANH_GELU', "tests/test_bert.py"),
    # ---- the engine
    Mutant("MPNet: left and right exchanged", "minbert/mpnet.py", "half * (offset > 0)", "half * (offset < 0)",
           "tests/test_mpnet.py"),
    Mutant("MPNet: attention dropout left out", "minbert/mpnet.py",
           "F.dropout(weights, self.dropout_p, self.training) @ value", "weights @ value", "tests/test_mpnet.py"),
    Mutant("engine: fused attention without MPNet's bias", "engine/attention.py", "mask if bias is None else bias",
           "mask", "tests/test_mpnet.py"),
    Mutant("engine: attention dropout left out", "engine/attention.py", "dropout(weights, dropout_p) @ value",
           "weights @ value", "tests/test_dropout.py"),
    Mutant("engine: hidden dropout left out", "engine/bert.py",
           "dropout(linear(module.dense, x), module.dropout_p, module.training) + residual",
           "linear(module.dense, x) + residual", "tests/test_dropout.py"),
    Mutant("engine: embedding dropout left out", "engine/bert.py",
           "return dropout(self.LayerNorm(total), self.dropout_p, self.training)", "return self.LayerNorm(total)",
           "tests/test_dropout.py"),
    Mutant("engine: [CLS] without its residual", "engine/bert.py",
           "packing.first(hidden) if cls_only else hidden)", "context if cls_only else hidden)",
           "tests/test_engine.py -k cls_only"),
    Mutant("engine: coarse precision for nothing", "engine/precision.py",
           "seconds[precision.name] * LEAST_GAIN < seconds[chosen.name]", "seconds[precision.name] < 9",
           "tests/test_precision.py"),
    # ---- AdamW
    Mutant("AdamW: decay inside the gradient's average", "minbert/adamw.py",
           "m.mul_(beta1).add_(gradient, alpha=1 - beta1)",
           'm.mul_(beta1).add_(gradient + group["weight_decay"] * parameter, alpha=1 - beta1)',
           "tests/test_optimizer.py"),
    Mutant("AdamW: no bias correction of v", "minbert/adamw.py", "v.sqrt() / math.sqrt(1 - beta2**t)", "v.sqrt()",
           "tests/test_optimizer.py"),
    Mutant("AdamW: correct_bias ignored", "minbert/adamw.py", 'if not group["correct_bias"]:', "if False:",
           "tests/test_optimizer.py"),
    Mutant("AdamW: eps inside the root", "minbert/adamw.py", "m_hat / (root_of_v_hat + eps)",
           "m_hat / (root_of_v_hat**2 + eps).sqrt()", "tests/test_optimizer.py"),
    Mutant("AdamW: the step is not counted", "minbert/adamw.py", 'state["step"] += 1', 'state["step"] = 1',
           "tests/test_optimizer.py"),
    Mutant("FastAdamW: scale forgotten together", "engine/adamw.py",
           "gradients = torch._foreach_mul(gradients, scale)", "pass", "tests/test_optimizer.py"),
    Mutant("biases decay", "training/parameters.py",
           'is_vector = name.endswith("bias") or "LayerNorm" in name or parameter.ndim < 2', "is_vector = False",
           "tests/test_optimizer.py"),
    # ---- pooling, heads, objectives
    Mutant("mean pooling over padding", "tasks/pooling.py", "weights.sum(dim=1, keepdim=True).clamp_min(1)",
           "weights.shape[1]", "tests/test_pooling.py"),
    Mutant("u and v interleaved", "tasks/pair.py", "for side in (0, 1) for example in examples]",
           "for example in examples for side in (0, 1)]", "tests/test_tasks.py -k similarity"),
    Mutant("|u-v| without abs", "tasks/heads.py", "(u - v).abs()", "(u - v)", "tests/test_tasks.py -k paraphrase"),
    Mutant("u*v is u+v", "tasks/heads.py", '"u*v": lambda u, v: u * v', '"u*v": lambda u, v: u + v',
           "tests/test_tasks.py -k paraphrase"),
    Mutant("STS target not divided by 5", "tasks/objectives.py", "(self.high - self.low) * labels / self.highest",
           "(self.high - self.low) * labels", "tests/test_tasks.py -k similarity"),
    Mutant("target range ignored", "tasks/objectives.py", "return self.low + (self.high - self.low) * labels",
           "return labels", "tests/test_tasks.py -k target_range"),
    Mutant("single logit without sigmoid", "tasks/objectives.py", "scores.sigmoid() if self.of_logits else scores",
           "scores", "tests/test_tasks.py -k similarity"),
    Mutant("every task a trunk of its own", "training/model.py", "            task.share(trunk)",
           "            task.share(Trunk(sharing[0].features, config.hidden_size, 0.0))",
           "tests/test_tasks.py -k trunk"),
    Mutant("trunk out of surgery", "training/step.py", "if p.requires_grad] + between,", "if p.requires_grad],",
           "tests/test_trainer.py -k trunk"),
    Mutant("exemplars without their labels", "tasks/heads.py", "torch.cat([self.cosines(vectors), labels], dim=1)",
           "torch.cat([self.cosines(vectors), 0 * labels], dim=1)", "tests/test_tasks.py -k exemplar"),
    Mutant("exemplars embedded with dropout", "tasks/sentiment.py", "        with evaluating(encoder, self):",
           "        if True:", "tests/test_tasks.py -k exemplar"),
    Mutant("dropout on vectors left out", "tasks/pair.py", "u, v = self.dropout(u), self.dropout(v)", "pass",
           "tests/test_tasks.py -k dropout_on_vectors"),
    Mutant("a share is the whole set", "training/batching.py", "max(1, round(share * len(examples)))", "len(examples)",
           "tests/test_recipes.py -k all_together"),
    Mutant("rows of span attention not kept apart", "tasks/phrases.py", "PENALTY_WEIGHT * (first + second) / 2",
           "0 * (first + second)", "tests/test_phrases.py -k penalty"),
    Mutant("random pairs take aligned phrases", "tasks/phrases.py", 'options.random_sources == "all"', "False",
           "tests/test_phrases.py -k three_classes"),
    Mutant("conflicts counted the wrong way", "training/evaluate.py", "np.array(values) < 0", "np.array(values) > 0",
           "tests/test_trainer.py -k conflicts"),
    Mutant("a drawn dev set is trained on", "corpora/layouts.py",
           "train = [example for example in examples if example.sentences not in held_out]", "train = list(examples)",
           "tests/test_layouts.py -k drawn"),
    Mutant("words for labels ignored", "corpora/layouts.py", "return layout.labels[word]", "return 0",
           "tests/test_layouts.py -k format"),
    Mutant("votes of the Twitter corpus ignored", "corpora/pairs.py", "if int(match[1]) >= AGREED else",
           "if True else", "tests/test_pairs.py -k layout"),
    Mutant("a mean that is the course's score", "tasks/leaderboard.py",
           "return (sst_accuracy + para_accuracy + sts_pearson) / 3",
           "return overall_score(sst_accuracy, para_accuracy, sts_pearson)", "tests/test_compare.py -k one_table"),
    Mutant("cosine logit reversed", "tasks/pair.py", "[torch.zeros_like(logit), logit]",
           "[logit, torch.zeros_like(logit)]", "tests/test_tasks.py -k paraphrase"),
    Mutant("decision threshold reversed", "tasks/objectives.py", "(scores > self.threshold).long()",
           "(scores < self.threshold).long()", "tests/test_tasks.py -k 'paraphrase or threshold'"),
    Mutant("info_nce positives inverted", "tasks/objectives.py",
           "alike = labels / self.highest >= self.options.positive_from",
           "alike = labels / self.highest < self.options.positive_from", "tests/test_tasks.py -k info_nce"),
    Mutant("info_nce one way only", "tasks/objectives.py", "return (forward + backward) / 2", "return forward",
           "tests/test_tasks.py -k info_nce"),
    Mutant("a positive counts as a negative", "tasks/losses.py", "no_negative = (starts @ ends > 0) | (",
           "no_negative = (", "tests/test_losses.py"),
    Mutant("divergence of vectors by a softmax", "tasks/objectives.py",
           "return direction_divergence(first, second)", "return losses.symmetric_divergence(first, second)",
           "tests/test_tasks.py -k divergence"),
    Mutant("CoSENT in the wrong order", "tasks/losses.py", "labels[:, None] > labels[None, :]",
           "labels[:, None] < labels[None, :]", "tests/test_losses.py"),
    Mutant("triplet sign", "tasks/losses.py", "F.triplet_margin_loss(anchors, positives, negatives",
           "F.triplet_margin_loss(anchors, negatives, positives", "tests/test_losses.py"),
    Mutant("the penalty is dropped", "tasks/task.py", "return vectors, PENALTY_WEIGHT * penalty",
           "return vectors, 0 * penalty", "tests/test_tasks.py -k attentive"),
    Mutant("predictions leave the range", "tasks/objectives.py", "self.label(scores).clamp(0, self.highest)",
           "self.label(scores)", "tests/test_tasks.py -k range"),
    # ---- reading
    Mutant("NLI names swapped", "tasks/inference.py", '"contradiction": CONTRADICTION, "neutral": NEUTRAL',
           '"contradiction": NEUTRAL, "neutral": CONTRADICTION', "tests/test_tasks.py -k nli"),
    Mutant("numbered NLI labels 0 and 2 swapped", "tasks/inference.py",
           '"0": NEUTRAL, "1": CONTRADICTION, "2": ENTAILMENT', '"0": ENTAILMENT, "1": CONTRADICTION, "2": NEUTRAL',
           "tests/test_tasks.py -k nli"),
    Mutant("repeated ids are accepted", "corpora/examples.py", "if first != line:", "if False:",
           "tests/test_tasks.py -k prediction --doctest-modules corpora/examples.py"),
    Mutant("a phrase's own text as its negative", "tasks/phrases.py",
           "if candidate.text not in same]", "]", "tests/test_phrases.py"),
    Mutant("brackets stay in words", "minbert/tokenizer.py", 'separated = "".join(f" {c} " if ord(c) in PUNCTUATION',
           'separated = "".join(f" {c} " if ord(c) in PUNCTUATION and c not in "[]"',
           "tests/test_tokenizer.py -k special"),
    Mutant("strip_accents ignored", "minbert/tokenizer.py",
           "return self.lowercase if self.strip_accents is None else self.strip_accents", "return self.lowercase",
           "tests/test_tokenizer.py -k cleaning"),
    Mutant("truncation takes from the shorter sentence", "minbert/tokenizer.py",
           "return (short, long) if first <= second else (long, short)",
           "return (long, short) if first <= second else (short, long)", "tests/test_tokenizer.py -k longest"),
    # ---- the step
    Mutant("no warm-up", "training/schedules.py", "return (step + 1) / (rising + 1)", "return 1.0",
           "tests/test_trainer.py -k schedules"),
    Mutant("warm-up half as long", "training/schedules.py", "math.ceil(warmup * total)",
           "math.ceil(warmup * total / 2)", "tests/test_trainer.py -k schedules"),
    Mutant("loss_weights ignored", "training/step.py", "factor = stage.loss_weights.get(name, 1.0) * factors",
           "factor = factors", "tests/test_trainer.py -k loss_weights"),
    Mutant("R-Drop never called", "training/step.py", "if stage.rdrop:", "if False:",
           "tests/test_trainer.py -k regularizers"),
    Mutant("SMART never called", "training/step.py", "if stage.smart:", "if False:",
           "tests/test_trainer.py -k regularizers"),
    Mutant("mean is the sum", "training/step.py", "weights /= len(names)", "pass",
           "tests/test_trainer.py -k 'combined_gradient or clip'"),
    Mutant("PCGrad on projected gradients", "training/surgery.py", "conflict = mix[i] @ gram[j]",
           "conflict = mix[i] @ gram @ mix[j]", "tests/test_surgery.py"),
    Mutant("PCGrad onto its own task too", "training/surgery.py", "if j != i and conflict < 0:", "if conflict < 0:",
           "tests/test_surgery.py -k own_original"),
    Mutant("the word table stays sparse", "training/gradients.py", "self.embedding.sparse = before", "pass",
           "tests/test_gradients.py"),
    Mutant("clipping left out", "training/step.py",
           "return stage.clip / norm if stage.clip and norm > stage.clip else 1.0", "return 1.0",
           "tests/test_trainer.py -k clip"),
    Mutant("head_lr ignored", "training/parameters.py", "(heads, lr if head_lr is None else head_lr)",
           "(heads, lr)", "tests/test_trainer.py -k layer_wise"),
    Mutant("EMA without its correction", "training/averaging.py",
           "rate = (1 - self.decay) / (1 - self.decay**self.count)", "rate = 1 - self.decay",
           "tests/test_trainer.py -k averages"),
    Mutant("predictions out of order", "training/evaluate.py", "result[name][np.concatenate(places)] = in_batches",
           "result[name][:] = in_batches", "tests/test_trainer.py -k order_of_the_examples"),
    Mutant("frozen parts keep their dropout", "training/parameters.py",
           "module.training = any(parameter.requires_grad for parameter in module.parameters())",
           "module.training = True", "tests/test_trainer.py -k evaluation_mode"),
    Mutant("a recipe's dropout overrides the class", "tasks/options.py", "if getattr(self, name) is None})", "})",
           "tests/test_recipe.py -k leave_open"),
    Mutant("McNemar of one side", "training/significance.py", "binomtest(only_first, total, 0.5)",
           "binomtest(only_first, total, 0.5, 'less')",
           "tests/test_compare.py"),
    # ---- reports, checks, estimates
    Mutant("the report's script escapes nothing", "report/page.py", "autoescape=True", "autoescape=False",
           "tests/test_report_page.py tests/test_report.py"),
    Mutant("calibration without weights", "report/analysis.py", "float(gaps @ np.array(counts) / len(rows))",
           "float(gaps.mean())", "tests/test_report.py"),
    Mutant("a threshold that divides equal scores", "report/analysis.py", "np.argmax(np.where(possible, right, -1))",
           "np.argmax(right)", "tests/test_report.py"),
    Mutant("the least bad examples first", "report/analysis.py", "key=lambda row: -badness", "key=lambda row: badness",
           "tests/test_report.py"),
    Mutant("pairs compared in their order", "corpora/check.py", "sorted(map(_letters, sentences))",
           "map(_letters, sentences)", "tests/test_check.py"),
    Mutant("a teacher's weight goes to the labels", "tasks/task.py",
           "(1 - weight) * loss + weight * against_answers", "weight * loss + (1 - weight) * against_answers",
           "tests/test_teacher.py"),
    Mutant("a teacher reads the student's token ids", "training/teacher.py", "task.tokenize(copies)", "pass",
           "tests/test_teacher.py"),
    Mutant("a learned weight that the rule has seen", "training/step.py", "losses[name] = loss.detach()",
           "losses[name] = factors.get(name, 1.0) * loss.detach()", "tests/test_trainer.py"),
    Mutant("every hidden word becomes [MASK]", "tasks/masked.py", "chosen & (kind < BECOMES_MASK)", "chosen",
           "tests/test_masked.py"),
    Mutant("negatives that a chain of duplicates joins", "training/mining.py", "same | (cosines < low)",
           "(cosines < low)", "tests/test_mining.py"),
    Mutant("held-out rows that are trained on", "training/data.py", "if _texts(example) not in texts", "if True",
           "tests/test_threshold.py"),
    Mutant("LoRA with one matrix for all layers", "tasks/lowrank.py", "self.down[index, place]", "self.down[0, place]",
           "tests/test_lowrank.py"),
    Mutant("an adapter in place of what it adapts", "tasks/adapters.py", "return y + F.linear(", "return F.linear(",
           "tests/test_adapters.py"),
    Mutant("DWA without the number of tasks", "training/weighting.py", "len(powers) * power", "power",
           "tests/test_weighting.py"),
    Mutant("GradNorm with ratios that are not relative", "training/weighting.py", "(ratios[name] / mean_ratio)",
           "ratios[name]", "tests/test_weighting.py"),
    Mutant("FAMO without the softmax's Jacobian", "training/weighting.py", "(falls[name] - mean)", "falls[name]",
           "tests/test_weighting.py"),
    Mutant("a rehearsal that moves thresholds", "training/step.py", "buffer.copy_(before)", "pass",
           "tests/test_estimate.py"),
    Mutant("a task's own layers learn at the heads' rate", "training/parameters.py",
           "for named, rate in ((copies, lr), (heads,", "for named, rate in ((copies, head_lr or lr), (heads,",
           "tests/test_own_layers.py"),
    Mutant("own layers that are the encoder's", "tasks/task.py", "copy.deepcopy(layer, dict(outside))", "layer",
           "tests/test_own_layers.py"),
    Mutant("further data trains a head of its own", "training/model.py",
           "tasks[name]._modules = tasks[settings.model_of]._modules", "pass", "tests/test_model_of.py"),
    Mutant("both encodings, the pair left out", "tasks/pair.py",
           "torch.cat([combine(u, v, self.parts), pair], dim=1)",
           "torch.cat([combine(u, v, self.parts), pair * 0], dim=1)", "tests/test_tasks.py -k both"),
]


LIBRARIES = ("torch", "numpy", "scipy.stats", "transformers", "hypothesis", "pytest", "safetensors.torch")


def copied(mutant: Mutant, folder: Path) -> Path:
    """Copy the tree into a folder and plant the mistake. Returns the copy's place."""
    copy = folder / "project"
    copy.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    if (ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to(ROOT.parent / "shared")
    path = copy / mutant.file
    path.write_text(path.read_text("utf-8").replace(mutant.before, mutant.after), encoding="utf-8")
    return copy


def tested(mutant: Mutant, copy: Path, log: Path):
    """Run a mutant's tests in this process, and end it with pytest's status."""
    os.chdir(copy)
    sys.path[:] = [str(copy), *(place for place in sys.path if Path(place) not in (ROOT, ROOT / "tests"))]
    stream = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    status = importlib.import_module("pytest").main(
        ["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-m", "not slow", *shlex.split(mutant.tests)])
    sys.stdout.flush()
    os._exit(int(status))


def verdict(status: int | None, said: str) -> str:
    """Say what became of a mutant. status: of pytest. said: what pytest printed."""
    failed = [line.split(" ")[1].split("::")[-1] for line in said.splitlines()
              if line.startswith(("FAILED ", "ERROR "))]
    if status == 1 and failed:
        return f"caught by {failed[0][:70]}"
    if status == 0:
        return "SURVIVED"
    return f"BROKEN: pytest ended with {status}: {said.strip()[-200:]}"


def run_all(mutants: Sequence[Mutant], parallel: int) -> int:
    """Run the mutants, some at a time. Print a line for each. Returns how many are not caught."""
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1")
    sys.dont_write_bytecode = True
    for name in LIBRARIES:
        importlib.import_module(name)
    waiting, running, bad = list(mutants), {}, 0
    while waiting or running:
        while waiting and len(running) < parallel:
            mutant, folder = waiting.pop(0), tempfile.TemporaryDirectory(prefix="mutant-")
            log = Path(folder.name, "log")
            process = multiprocessing.get_context("fork").Process(
                target=tested, args=(mutant, copied(mutant, Path(folder.name)), log))
            process.start()
            running[process.sentinel] = mutant, process, folder, log, time.monotonic()
        for sentinel in wait(list(running)):
            mutant, process, folder, log, started = running.pop(sentinel)
            process.join()
            result = verdict(process.exitcode, log.read_text("utf-8", errors="replace"))
            folder.cleanup()
            bad += not result.startswith("caught")
            print(f"| {mutant.name} | {mutant.file} | {result} | {time.monotonic() - started:.0f} s |", flush=True)
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of names (default: all)")
    parser.add_argument("--part", type=int, default=0, help="which part of the list; counted modulo --of")
    parser.add_argument("--of", type=int, default=1, help="into how many parts the list is split")
    parser.add_argument("--parallel", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    chosen = [mutant for number, mutant in enumerate(MUTANTS) if number % options.of == options.part % options.of
              and (not options.names or any(name in mutant.name for name in options.names))]
    for mutant in chosen:
        count = (ROOT / mutant.file).read_text("utf-8").count(mutant.before)
        if count != 1:
            print(f"{mutant.name}: {mutant.file} has the text {count} times; expected once")
            return 2
    bad = run_all(chosen, options.parallel)
    print(f"{len(chosen) - bad} of {len(chosen)} mutants caught")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
