"""Paraphrase pairs -> word alignment -> phrase pairs, with our own encoder and no parser."""
