"""The names that a recipe may use, apart from the code that they name.

Importing that code imports torch, which takes seconds. A wrong recipe is answered before. Each registry checks at
import that it has exactly these names. A list can be added to (docs/extending.md).
"""
COMBINERS = ["sum", "mean", "pcgrad", "gradvac", "cagrad", "mgda", "imtl_g", "nash", "aligned", "upgrad"]
WEIGHTINGS = ["none", "uncertainty", "dwa", "gradnorm", "famo"]  # rules that learn the loss weights
PRECISIONS = ("auto", "float32", "medium", "bfloat16")
ENGINES = ("engine", "plain")
COURSE_TASKS = ("sst", "para", "sts")  # those whose files are handed in
LOGS = ("tensorboard", "wandb")  # beside metrics.jsonl
