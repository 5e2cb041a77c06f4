"""R-Drop and SMART against their definitions."""
import pytest
import torch
from conftest import TINY, make_task
from torch.testing import assert_close

from engine.bert import FastBertModel
from minbert.bert import BertModel
from tasks.losses import symmetric_divergence
from training.rdrop import rdrop_loss
from training.smart import Push, embeddings_moved, smart_penalty


@pytest.fixture
def setting(tiny_tokenizer, toy_directory):
    torch.manual_seed(0)
    encoder = BertModel(TINY).eval()
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {}).eval()
    examples = task.read(toy_directory / "ids-sst-train.csv", "train").examples[:6]
    task.tokenize(examples)
    return encoder, task, task.collate(examples)


def test_rdrop_is_both_losses_and_their_divergence(setting):
    encoder, task, batch = setting
    encoder.train()
    task.train()
    torch.manual_seed(1)
    loss, outputs = rdrop_loss(task, encoder, batch, weight=0.7)
    torch.manual_seed(1)
    first, second = task.outputs(encoder, batch), task.outputs(encoder, batch)
    assert torch.equal(outputs.values, first.values) and not torch.equal(first.values, second.values)
    expected = (task.criterion(first, batch) + task.criterion(second, batch)) / 2
    assert_close(loss, expected + 0.7 * symmetric_divergence(first.values, second.values) / 2)


def test_rdrop_without_dropout_is_the_plain_loss(setting):
    encoder, task, batch = setting
    loss, _ = rdrop_loss(task, encoder, batch, weight=5.0)
    assert_close(loss, task.loss(encoder, batch), rtol=1e-5, atol=1e-6)


def pushed_by(value):
    push = Push(0.0)
    push.value = value
    return push


def test_a_push_moves_the_embeddings_and_is_taken_back(setting):
    encoder, task, batch = setting
    before = task.outputs(encoder, batch).values
    shape = (*batch.tokens.input_ids.shape, TINY.hidden_size)
    with embeddings_moved(encoder, pushed_by(torch.randn(shape))):
        assert not torch.allclose(task.outputs(encoder, batch).values, before)
    with embeddings_moved(encoder, pushed_by(torch.zeros(shape))):
        assert torch.equal(task.outputs(encoder, batch).values, before)
    assert torch.equal(task.outputs(encoder, batch).values, before)


def test_a_first_push_is_noise_of_its_deviation(setting):
    encoder, task, batch = setting
    push = Push(0.5)
    with embeddings_moved(encoder, push):
        task.outputs(encoder, batch)
    assert abs(push.value.std().item() - 0.5) < 0.05 and push.value.requires_grad


@pytest.mark.parametrize("kind", [BertModel, FastBertModel])
def test_smart_finds_a_worse_push_than_chance_and_trains_the_encoder(setting, kind):
    plain, task, batch = setting
    encoder = kind(TINY).eval()
    encoder.load_state_dict(plain.state_dict())
    outputs = task.outputs(encoder, batch)
    radius = 0.05
    found = smart_penalty(task, encoder, batch, outputs, noise=1e-3, step=1.0, radius=radius)
    found.backward(retain_graph=True)
    assert encoder.encoder["layer"][0].output.dense.weight.grad.abs().sum() > 0
    generator = torch.Generator().manual_seed(0)
    push = Push(0.0)
    with torch.no_grad(), embeddings_moved(encoder, push):
        task.outputs(encoder, batch)  # draws a push of the right shape
        for _ in range(20):
            push.value = radius * (torch.randint(0, 2, push.value.shape, generator=generator) * 2.0 - 1)
            assert task.divergence(task.outputs(encoder, batch), outputs) < found


def test_attentive_pooling_pays_its_penalty_for_the_clean_pass_only(setting, tiny_tokenizer, toy_directory):
    """R-Drop's two passes add the mean of their penalties; a pass of SMART adds none."""
    encoder, _, _ = setting
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {"pooling": "attentive"}).eval()
    examples = task.read(toy_directory / "ids-sst-train.csv", "train").examples[:6]
    task.tokenize(examples)
    batch = task.collate(examples)
    outputs = task.outputs(encoder, batch)
    assert outputs.penalty > 0
    loss, first = rdrop_loss(task, encoder, batch, weight=0.0)  # in evaluation mode both passes are alike
    assert_close(loss, task.criterion(outputs, batch))
    assert_close(first.penalty, outputs.penalty)
    assert smart_penalty(task, encoder, batch, outputs) < 1e-6  # a push of 1e-5 moves no logit, so nothing is added
