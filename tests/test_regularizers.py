"""R-Drop and SMART against their definitions."""
import pytest
import torch
from conftest import TINY
from torch.testing import assert_close

from minbert.bert import BertModel
from tasks import make_task
from tasks.losses import symmetric_divergence
from training.rdrop import rdrop_loss
from training.smart import embeddings_moved, smart_penalty


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
    assert torch.equal(outputs, first) and not torch.equal(first, second)
    expected = (task.criterion(first, batch) + task.criterion(second, batch)) / 2
    assert_close(loss, expected + 0.7 * symmetric_divergence(first, second) / 2)


def test_rdrop_without_dropout_is_the_plain_loss(setting):
    encoder, task, batch = setting
    loss, _ = rdrop_loss(task, encoder, batch, weight=5.0)
    assert_close(loss, task.loss(encoder, batch), rtol=1e-5, atol=1e-6)


def test_a_push_moves_the_embeddings_and_is_taken_back(setting):
    encoder, task, batch = setting
    before = task.outputs(encoder, batch)
    push = torch.randn(batch.tokens.tokens, TINY.hidden_size)
    with embeddings_moved(encoder, push):
        assert not torch.allclose(task.outputs(encoder, batch), before)
    with embeddings_moved(encoder, torch.zeros_like(push)):
        assert torch.equal(task.outputs(encoder, batch), before)
    assert torch.equal(task.outputs(encoder, batch), before)


def test_smart_finds_a_worse_push_than_chance_and_trains_the_encoder(setting):
    encoder, task, batch = setting
    outputs = task.outputs(encoder, batch)
    radius = 0.05
    found = smart_penalty(task, encoder, batch, outputs, noise=1e-3, step=1.0, radius=radius)
    found.backward(retain_graph=True)
    assert encoder.encoder.layer[0].output.dense.weight.grad.abs().sum() > 0
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(20):
            signs = torch.randint(0, 2, (batch.tokens.tokens, TINY.hidden_size), generator=generator) * 2.0 - 1
            with embeddings_moved(encoder, radius * signs):
                assert task.divergence(task.outputs(encoder, batch), outputs) < found
