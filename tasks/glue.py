"""GLUE (Wang et al. 2019) and PAWS (Zhang et al. 2019): ten layouts of files over one cross-encoded classifier.

[CLS] u [SEP] v [SEP], dropout and a linear layer on the pooled output, as BERT does (Devlin et al. 2019, section 4.1);
regression for STS-B. Official metrics, and the files that the GLUE server takes. corpora/glue.py describes the files.
"""
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from corpora.examples import Dataset, Example, IdRegister, examples_of
from corpora.files import write_text
from corpora.glue import LAYOUTS, MAX_SCORE, UNKNOWN_LABELS
from corpora.tables import Row, read_lines, read_table
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks import metrics
from tasks.options import GlueOptions
from tasks.pair import PairTask


class Glue(PairTask):
    """Answer one of GLUE's questions."""

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, options: GlueOptions):
        self.layout = LAYOUTS[options.layout]
        self.classes = len(self.layout.names) or None
        self.highest = MAX_SCORE if self.classes is None else float(self.classes - 1)
        self.metric = self.layout.metrics[0]
        super().__init__(name, tokenizer, config, options)

    # ---- file -> examples --------------------------------------------------------------------------------------------

    def read(self, path: Path, split: str) -> Dataset:
        """Read train and dev files with labels, and test files with an index. See Task.read.

        The header, or its absence, is recognised. Rows with another number of columns than the header are left out and
        reported: GLUE's own QQP file has some that are broken over two lines.
        """
        layout, labelled = self.layout, split != "test"
        header = next(read_lines(path), "").split("\t")
        wanted = [*layout.sentences, *([layout.label] if labelled else [])]
        broken: list[tuple[int, str]] = []
        numbered = True
        if layout.bare and not set(wanted) <= set(header) and "index" not in header[:1]:
            rows = read_table(path, layout.bare, quoting=layout.quoting, header=False)
            numbered = False  # the index of STS-B's original files counts within a source
        else:
            rows = read_table(path, wanted, quoting=layout.quoting, optional=("index", "id"), broken=broken)
        examples, skipped, ids = examples_of(path), [], IdRegister(Path(path))
        for number, row in enumerate(rows):
            value = None
            identifier = numbered and (row.values.get("index") or row.values.get("id"))
            if identifier:
                ids.add(identifier, row.line)
            if labelled:
                if row.text(layout.label) in UNKNOWN_LABELS:
                    skipped.append((row.line, f"without {layout.label}"))
                    continue
                if blank := row.first_blank(layout.sentences):
                    skipped.append((row.line, f"without {blank}"))
                    continue
                value = self._label(row)
            examples.append(Example(identifier or str(number), tuple(row.sentence(name) for name in layout.sentences),
                                    value))
        return Dataset(Path(path), examples, sorted(skipped + broken))

    def _label(self, row: Row) -> float:
        if self.classes is None:
            return row.number(self.layout.label, 0, MAX_SCORE)
        return row.label(self.layout.label, self.layout.names)

    def sequences(self, examples: Sequence[Example]) -> list[tuple[list[int], list[int]]]:
        """Return the sequences of a batch."""
        if len(self.layout.sentences) == 1:
            return [self.tokenizer.build(example.ids[0], max_length=self.max_length) for example in examples]
        return super().sequences(examples)

    # ---- predictions -> score, file ----------------------------------------------------------------------------------

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return GLUE's metrics for the task."""
        return {name: getattr(metrics, name) for name in self.layout.metrics}

    def prediction_file(self, split: str) -> str:
        """Return the name that the GLUE server expects."""
        stem, _, suffix = self.layout.submission.partition(".")
        return self.layout.submission if split == "test" else f"{stem}-{split}.{suffix}"

    def write_predictions(self, path: Path, examples: Sequence[Example], predictions: np.ndarray):
        """Write the GLUE server's file: index and prediction, classes by name where they have one.

        Args:
            path: the file.
            examples: not used: the server counts rows.
            predictions: [B], in the order of the examples.
        """
        lines = ["index\tprediction"]
        for index, prediction in enumerate(predictions):
            if self.classes is None:
                text = f"{min(MAX_SCORE, max(0.0, float(prediction))):.3f}"
            else:
                text = self.layout.names[int(prediction)]
            lines.append(f"{index}\t{text}")
        write_text(path, "\n".join(lines) + "\n")
