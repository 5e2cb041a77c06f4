"""Sentences on disk: the one reader of tables, generated corpora, and the downloader of the public sets."""
