"""The engine equals the lesson on real sentences: hidden states, attention weights, gradients, twenty training steps.

float32 bounds are 1e-5. The bound of bfloat16 is 5 % of the size of a hidden state (its digits are worth 0.4 %, and six
layers add up).
"""
import dataclasses
import json

import pytest
import safetensors.torch
import torch
import transformers
from conftest import TINY
from torch.testing import assert_close

import train_multitask
from engine.bert import FastBertModel
from engine.precision import BFLOAT16, FLOAT32, MEDIUM
from minbert.batch import TokenBatch
from minbert.weights import load_encoder


@pytest.fixture(scope="module")
def both(model_directory):
    plain, tokenizer, _ = load_encoder(model_directory)
    fast, _, _ = load_encoder(model_directory, FastBertModel)
    return plain.eval(), fast.eval(), tokenizer


def batch_of(tokenizer, texts):
    batch = TokenBatch.from_sequences([tokenizer.build(ids, max_length=128) for ids in tokenizer.ids(texts)],
                                      tokenizer.pad_id)
    return batch.input_ids, batch.attention_mask


def test_the_twins_have_the_same_parameters_under_the_same_names(both):
    plain, fast, _ = both
    assert list(plain.state_dict()) == list(fast.state_dict())


@pytest.mark.parametrize("count", [200, 1])
def test_hidden_states_equal_the_lessons_on_200_sentences(both, sentences, count):
    """200 in a batch: with padding, packed inside. One in a batch: no padding at all."""
    plain, fast, tokenizer = both
    with torch.inference_mode():
        for start in range(0, 200 if count == 200 else 20, count):
            ids, mask = batch_of(tokenizer, sentences[start:start + count])
            expected = plain(ids, mask, output_hidden_states=True)
            found = fast(ids, mask, output_hidden_states=True)
            for mine, theirs in zip(found.hidden_states, expected.hidden_states, strict=True):
                assert_close(mine[mask], theirs[mask], rtol=0, atol=1e-5)
            assert_close(found.pooler_output, expected.pooler_output, rtol=0, atol=1e-5)
            assert not found.last_hidden_state[~mask].any()


def test_attention_weights_equal_the_lessons(both, sentences):
    plain, fast, tokenizer = both
    ids, mask = batch_of(tokenizer, sentences[:8])
    with torch.inference_mode():
        expected = plain(ids, mask, output_attentions=True).attentions
        found = fast(ids, mask, output_attentions=True).attentions
    real = mask[:, None, :, None] & mask[:, None, None, :]
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine * real, theirs * real, rtol=0, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_equal_the_lessons(both, sentences, training):
    """In training mode without dropout, attention is written out; else it is fused."""
    plain, fast, tokenizer = both
    ids, mask = batch_of(tokenizer, sentences[:16])
    torch.manual_seed(0)
    weights = torch.randn(*ids.shape, plain.config.hidden_size) * mask[..., None]
    for model in (plain, fast):
        for module in model.modules():
            if hasattr(module, "dropout_p"):
                module.dropout_p = 0.0
        model.train(training).zero_grad()
        output = model(ids, mask)
        ((output.last_hidden_state * weights).mean() + output.pooler_output.mean()).backward()
        model.eval()
    expected = dict(plain.named_parameters())
    for name, parameter in fast.named_parameters():
        assert_close(parameter.grad, expected[name].grad, rtol=1e-3, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("mask", [[[1, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 1, 1], [1, 1, 0, 0]],
                                  [[1, 1, 0, 0], [0, 0, 0, 0]], [[0, 1, 1, 1], [1, 0, 1, 0]]])
def test_cls_only_gives_the_same_first_token_and_the_same_gradients(fast_model, mask):
    """Full, padded, a sequence of padding alone, padding first."""
    model = fast_model.double()
    ids, mask = torch.randint(5, 1000, (2, 4)), torch.tensor(mask)
    weights = torch.randn(2, 2, TINY.hidden_size, dtype=torch.float64)
    results = []
    for cls_only in (False, True):
        model.zero_grad()
        output = model(ids, mask, cls_only=cls_only)
        assert output.last_hidden_state.shape[1] == (1 if cls_only else 4)
        first = output.last_hidden_state[:, 0]
        (weights * torch.stack([first, output.pooler_output])).sum().backward()
        results.append((first, output.pooler_output, {name: p.grad for name, p in model.named_parameters()}))
    assert_close(results[0], results[1], rtol=1e-10, atol=1e-10)


def test_cls_only_has_no_other_hidden_states_to_show(fast_model):
    with pytest.raises(ValueError, match="cls_only"):
        fast_model(torch.tensor([[5, 6]]), cls_only=True, output_hidden_states=True)


@pytest.mark.parametrize("mask", [
    [[1, 1, 1, 1, 1]] * 2, [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], [[0, 1, 1, 0, 1], [0, 0, 0, 0, 0]],
    [[1] * 7 + [0], [1] * 8], [[1] * 9, [0, 1] + [0] * 7, [0] * 9, [1] + [0] * 8]])
@pytest.mark.parametrize("cls_only", [False, True])
def test_rounded_shapes_change_no_number(fast_model, tiny_model, mask, cls_only):
    """The rows that a reduced precision adds, here in float64: the lesson's outputs and gradients."""
    mask = torch.tensor(mask)
    ids = torch.randint(5, 1000, mask.shape)
    real = mask.bool()
    weights = torch.randn(*mask.shape, TINY.hidden_size, dtype=torch.float64) * real[..., None]
    if cls_only:
        weights = weights[:, :1]
    fast_model.precision = dataclasses.replace(MEDIUM, products="medium")  # products of float64 are exact anyway
    results = []
    for model, options in ((tiny_model.double(), {}), (fast_model.double(), {"cls_only": cls_only})):
        model.zero_grad()
        output = model(ids, mask, output_attentions=True, **options)
        hidden = output.last_hidden_state[:, :1] if cls_only else output.last_hidden_state
        (hidden * weights).sum().backward()
        kept = real[:, :1] if cls_only else real
        pairs = real[:, None, :, None] & real[:, None, None, :]
        results.append((hidden[kept], [a * pairs[..., :a.shape[2], :] for a in output.attentions[:-1]],
                        {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    assert_close(results[1], results[0], rtol=1e-10, atol=1e-10)


def test_a_sequence_of_padding_alone_is_zeros_and_finite_in_both_passes(fast_model):
    ids = torch.randint(5, 1000, (2, 5))
    output = fast_model(ids, torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]))
    assert (output.last_hidden_state[1] == 0).all() and output.pooler_output.isfinite().all()
    output.last_hidden_state.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in fast_model.parameters() if p.grad is not None)


@pytest.mark.parametrize("precision", [FLOAT32, BFLOAT16])
def test_a_tasks_own_layers_run_as_in_the_lesson(tiny_model, fast_model, precision):
    hidden = torch.randn(2, 6, TINY.hidden_size)
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0]]).bool()
    fast_model.precision = precision
    expected, _ = tiny_model.run_layers(tiny_model.encoder["layer"], hidden, mask)
    found, _ = fast_model.run_layers(tiny_model.encoder["layer"], hidden, mask)
    assert_close(found[-1][mask], expected[-1][mask], rtol=0, atol=1e-5 if precision is FLOAT32 else 0.05)


def test_bfloat16_stays_within_its_bound(both, sentences):
    plain, fast, tokenizer = both
    ids, mask = batch_of(tokenizer, sentences[:64])
    fast.precision = BFLOAT16
    with torch.inference_mode():
        expected = plain(ids, mask).last_hidden_state[mask]
        found = fast(ids, mask).last_hidden_state[mask]
    fast.precision = FLOAT32
    distance = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert found.dtype == torch.float32 and 0 < distance.max() < 0.05


@pytest.mark.parametrize("batch", [16, 1])
@pytest.mark.parametrize("cls_only", [False, True])
def test_bfloat16_is_as_near_to_float32_as_transformers_is(both, model_directory, sentences, batch, cls_only):
    """The distance of hidden states and of the gradients, which stay float32, from those of full precision."""
    plain, fast, tokenizer = both
    ids, mask = batch_of(tokenizer, sentences[:batch])
    first = slice(0, 1) if cls_only else slice(None)
    torch.manual_seed(0)
    weights = (torch.randn(*ids.shape, plain.config.hidden_size) * mask[..., None])[:, first]
    rounded = transformers.BertModel.from_pretrained(model_directory, attn_implementation="eager").eval()
    rounded.to(torch.bfloat16)

    def run(model):
        model.zero_grad()
        options = {"cls_only": cls_only} if model is fast else {}
        hidden = model(input_ids=ids, attention_mask=mask, **options).last_hidden_state[:, first].float()
        (hidden * weights).sum().backward()
        gradients = dict(model.named_parameters())
        found = [gradients[f"encoder.layer.{index}.{part}.dense.weight"].grad.float().clone()
                 for index in range(6) for part in ("attention.output", "intermediate", "output")]
        return [(hidden * mask[:, first, None]).detach(), *found]

    exact = run(plain)
    fast.precision = BFLOAT16
    mine, reference = run(fast), run(rounded)
    fast.precision = FLOAT32
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in fast.parameters())
    for right, ours, theirs in zip(exact, mine, reference, strict=True):
        assert 0 < (ours - right).norm() < 1.5 * (theirs - right).norm()
        assert (theirs - right).norm() < 0.1 * right.norm()


RECIPE = """
encoder_dropout = 0.0
hidden_dropout_prob = 0.0
precision = "float32"
[tasks.sst]
{layers}
[[stage]]
tasks = ["sst", "para", "sts"]
epochs = 1
steps_per_epoch = 20
keep = "last"
combine = "{combine}"
optimizer = {{ lr = 5e-5, head_lr = 1e-3 }}
"""


@pytest.mark.parametrize(("combine", "layers"), [("sum", ""), ("pcgrad", "new_layers = 1"),
                                                  ("pcgrad", "own_layers = 1"), ("sum", "own_layers = 2")])
def test_twenty_training_steps_end_with_the_lessons_parameters(tmp_path, monkeypatch, tiny_directory, toy_directory,
                                                                combine, layers):
    """Through the command line: losses within 1e-4 at each of 20 steps, parameters within 1e-5 at the end."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins.toml").write_text(RECIPE.format(combine=combine, layers=layers))
    losses, parameters = [], []
    for engine in ("plain", "engine"):
        assert train_multitask.main(["--recipe", "twins.toml", "--engine", engine, "--weights", str(tiny_directory),
                                     "--data", str(toy_directory), "--out", engine, "--no_progress"]) == 0
        records = [json.loads(line) for line in (tmp_path / engine / "metrics.jsonl").read_text().splitlines()]
        losses.append([record["loss"] for record in records if "loss" in record])
        parameters.append(safetensors.torch.load_file(tmp_path / engine / "model.safetensors"))
    assert len(losses[0]) == 20
    for plain, fast in zip(*losses, strict=True):
        assert plain == pytest.approx(fast, abs=1e-4)
    assert parameters[0].keys() == parameters[1].keys()
    for name, expected in parameters[0].items():
        assert_close(parameters[1][name], expected, rtol=0, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}")


def test_the_plain_engine_has_no_other_precision(tmp_path, monkeypatch, capsys, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    assert train_multitask.main(["--engine", "plain", "--precision", "bfloat16", "--weights", str(tiny_directory),
                                 "--data", str(toy_directory), "--no_progress"]) == 2
    assert "the plain engine computes in float32" in capsys.readouterr().err
