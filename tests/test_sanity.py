"""The course's sanity check: with pre-trained weights loaded, two sentences come out as the reference has them."""
import torch
import transformers

from minbert.weights import load_encoder


def test_pretrained_encoder_reproduces_the_reference(model_directory):
    encoder, tokenizer, report = load_encoder(model_directory)
    assert not report.missing and not report.unexpected
    reference = transformers.BertModel.from_pretrained(model_directory).eval()
    encoder.eval()
    rows = [tokenizer.encode(text).input_ids for text in ("A movie to remember .", "Hello")]
    ids = torch.tensor([row + [0] * (len(rows[0]) - len(row)) for row in rows])
    mask = (ids != 0).long()
    with torch.inference_mode():
        ours = encoder(ids, mask)
        theirs = reference(input_ids=ids, attention_mask=mask)
    assert torch.allclose(ours.last_hidden_state[mask.bool()], theirs.last_hidden_state[mask.bool()], atol=1e-5)
    assert torch.allclose(ours.pooler_output, theirs.pooler_output, atol=1e-5)
