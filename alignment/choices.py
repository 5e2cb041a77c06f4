"""The names that a command may use, apart from the code that they name. Importing that code imports torch."""
METHODS = ("identity", "intersection", "itermax", "transport")  # of word alignment: alignment/words.py
EXTRACTORS = ("bracket", "trees", "koehn")  # of phrase pairs: alignment/extraction.py
