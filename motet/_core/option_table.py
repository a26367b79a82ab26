"""Every option of an experiment in one table: its config key, its flag and its help.

The command line builds its options from these rows (`motet._cli.options`), flags reach their config
keys through them (`motet._cli.request`), the config sections take their docstrings from them, and
docs/reference/config.md is written from them. A new flag is one row. No import here needs torch,
because `motet --help` reads the table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

WHAT, DATA, TRAINING, RUN = "What to run", "Data", "Training", "Run"
COMPARISON, OUTPUT = "Comparison", "Output"
TABLE = "Columns and rows of a table"
PANELS = (WHAT, DATA, TABLE, TRAINING, RUN, COMPARISON, OUTPUT)

# Commands that take a flag. "other": those that only show something.
ONE_RUN, COMPARE = ("run",), ("compare",)
EXPERIMENT = (*ONE_RUN, *COMPARE)
RUNNING = (*EXPERIMENT, "resume")
NAMING_DATA = (*EXPERIMENT, "init")
ANY_DATA = (*NAMING_DATA, "data")
READING_FILES = (*ANY_DATA, "predict")
SHOWING = ("data", "init", "other")
ALL = (*RUNNING, *SHOWING)
SECTIONS = ("method", "data", "model", "run", "compare")

Section = TypeVar("Section", bound=type)


class Toml(str):
    """The type of flags that are read as TOML: 4, 0.2 and "none" mean different things."""

    __slots__ = ()


class OneOrMore(str):
    """The type of flags that may be repeated: a text if given once, else a list."""

    __slots__ = ()


@dataclass(frozen=True)
class Row:
    """One option.

    Attributes:
        key: Where a config says it; None for options that decide nothing about the numbers.
        help: What it means, for `--help`, docstrings and the reference alike.
        flag: Its name on the command line; None if only `--set` and config files reach it.
        type: Type of the flag's value.
        panel: The group of `--help` it is listed in.
        commands: Commands that take the flag.
        metavar: What stands for the value in `--help`; None: the name of the type.
        parameter: Name of the commands' parameter; None: that of the flag.
    """

    key: str | None
    help: str
    flag: str | None = None
    type: Any = str
    panel: str = OUTPUT
    commands: tuple[str, ...] = ()
    metavar: str | None = None
    parameter: str | None = None

    @property
    def name(self) -> str:
        """Name of the commands' parameter."""
        flag = (self.flag or "").partition("/")[0]  # --with/--without has the first one's name
        return self.parameter or flag.lstrip("-").replace("-", "_")


# The order is that of `--help` within a panel. Flags are also applied to a config in this order,
# so the row that names a method, data or a partition comes before the rows of its fields.
# fmt: off
ROWS = (
    Row("method.name", "Method by name (see `motet methods`).",
        "--method", str, WHAT, ONE_RUN),
    Row("compare.methods",
        "Methods, such as fedper,ditto, or all; local, fedavg and fedavg-ft are always included.",
        "--methods", str, WHAT, COMPARE, "NAMES"),
    Row("model.name",
        "Reference network, or your own as package.module:function; default: suits the data.",
        "--model", str, WHAT, EXPERIMENT),
    Row(None, "Any key of a config, such as method.optimizer.momentum=0.9; may be repeated.",
        "--set", list[str], WHAT, ANY_DATA, "KEY=VALUE", "settings"),
    Row("model.loss",
        "Loss by name; default: cross_entropy for classes (masked_cross_entropy for padded "
        "sequences), mse for values, discrete_hazard for survival."),
    Row("model.times",
        "Ends of the time bins of discrete_hazard; default: bins with about equally many events."),
    Row("model.bins", "Number of time bins, if `times` is not given; default: 10."),
    Row("model.init",
        "Start from the weights of a run, a checkpoint or a .safetensors file; default: drawn.",
        "--init", str, WHAT, EXPERIMENT, "PATH"),
    Row("model.rename",
        'Names or dotted prefixes in model.init and what the network calls them; "" drops a '
        'prefix, "none" the tensors; default: the same names.'),
    Row("model.init_sha256", "Hash of the weights of model.init; default: not checked."),
    Row("model.base",
        "A .safetensors file with the weights that the network freezes; default: as it makes them.",
        "--base", str, WHAT, EXPERIMENT, "FILE"),
    Row("model.frozen",
        "Hash of the frozen weights; other weights are refused; default: that of the first start."),
    Row("model.options", "Keywords of the network; in a config they stand beside `name`."),
    Row("data.name", "Dataset by name (see `motet data`); default: digits.",
        "--data", str, DATA, NAMING_DATA),
    Row("data.table",
        "A .csv, .tsv, .txt, .parquet, .feather or .xlsx file, or one per client: 'sites/*.csv'.",
        "--table", str, DATA, ANY_DATA, "FILE"),
    Row("data.folder", "A folder with a subfolder of arrays per client.",
        "--folder", str, DATA, ANY_DATA, "DIR"),
    Row("data.client",
        "Column of the table that names the client; default: every file is a client.",
        "--client-column", str, DATA, ANY_DATA, "NAME"),
    Row("data.target",
        "Column of the table to predict; may be repeated for several columns of yes and no.",
        "--target", OneOrMore, DATA, ANY_DATA, "NAME"),
    Row("data.event",
        "Column that says whether the event happened (1) or not (0): the target is then a time.",
        "--event", str, TABLE, ANY_DATA, "NAME"),
    Row("data.kind", "What the target is: classes, regression or auto; default: auto.",
        "--kind", str, TABLE, ANY_DATA, "KIND"),
    Row("data.labels",
        "Label for a spelling of the target, such as 1=ill; may be repeated; default: none.",
        "--label", list[str], TABLE, ANY_DATA, "TEXT=LABEL", "labels"),
    Row("data.features", "Input column of the table; may be repeated; default: all others.",
        "--features", list[str], TABLE, ANY_DATA, "NAME"),
    Row("data.drop", "Column to leave out; may be repeated; default: none.",
        "--drop", list[str], TABLE, ANY_DATA, "NAME"),
    Row("data.categorical", "Input column to one-hot encode; may be repeated; default: none.",
        "--categorical", list[str], TABLE, ANY_DATA, "NAME"),
    Row("data.ordinal",
        "Input column with ordered categories: stage=I<II<III; may be repeated; default: none.",
        "--ordinal", list[str], TABLE, ANY_DATA, "NAME=A<B"),
    Row("data.dates",
        "Input column of dates: visit, birth=age, visit=year+day_of_year; may be repeated.",
        "--dates", list[str], TABLE, ANY_DATA, "NAME[=PART]"),
    Row("data.date_format", "How dates are written, such as %d.%m.%Y; default: detected.",
        "--date-format", str, TABLE, ANY_DATA, "FORMAT"),
    Row("data.reference_date",
        "Day at which ages are measured; default: the latest date in the table.",
        "--reference-date", str, TABLE, ANY_DATA, "DATE"),
    Row("data.units", "Unit of a column, such as chol=mg/dl; may be repeated; default: none.",
        "--unit", list[str], TABLE, ANY_DATA, "NAME=UNIT", "units"),
    Row("data.missing",
        "Fill for missing numbers: median, mean, client-median, indicator, 0; default: error.",
        "--missing", Toml, TABLE, ANY_DATA, "HOW"),
    Row("data.indicators", "Mark missing values with one more input per column.",
        "--indicators", bool, TABLE, ANY_DATA),
    Row("data.na",
        "Text of a missing value, besides empty, ?, NA, n/a, NaN and null; may be repeated.",
        "--na", list[str], TABLE, ANY_DATA, "TEXT"),
    Row("data.drop_missing_target", "Drop rows without a target.",
        "--drop-missing-target", bool, TABLE, ANY_DATA),
    Row("data.drop_missing_client", "Drop rows without a client.",
        "--drop-missing-client", bool, TABLE, ANY_DATA),
    Row("data.standardize",
        "Scale inputs to mean 0 and deviation 1, over the federation or each site; default: none.",
        "--standardize", Toml, TABLE, ANY_DATA, "WHERE"),
    Row("data.rare",
        "Categories with fewer rows share one input; below 1: a share of all rows; default: 0.",
        "--rare", float, TABLE, ANY_DATA, "ROWS"),
    Row("data.merge_spellings",
        "Whether clients, categories and labels that differ only in case are the same; default: "
        "true.",
        "--merge-spellings/--no-merge-spellings", bool, TABLE, ANY_DATA),
    Row("data.encoding", "Encoding of a text file, such as cp1252; default: detected.",
        "--encoding", str, TABLE, READING_FILES, "NAME"),
    Row("data.delimiter", "Delimiter of a text file; tab for tabs; default: detected.",
        "--delimiter", str, TABLE, READING_FILES, "CHARACTER"),
    Row("data.decimal", "Decimal separator of a text file; default: detected.",
        "--decimal", str, TABLE, READING_FILES, "CHARACTER"),
    Row("data.sheet", "Sheet of an Excel file; default: the first.",
        "--sheet", str, TABLE, READING_FILES, "NAME"),
    Row("data.skip_rows", "Lines before the header; default: 0.",
        "--skip-rows", int, TABLE, READING_FILES, "LINES"),
    Row("data.columns",
        "Names for the columns of a file without a header: id,age; default: it has one.",
        "--columns", list[str], TABLE, READING_FILES, "NAMES"),
    Row("data.bad_rows",
        "What to do with rows of too many or too few cells: error or skip; default: error.",
        "--bad-rows", str, TABLE, READING_FILES, "WHAT"),
    Row("data.split",
        "Column that says train, val or test; default: rows are drawn by `val` and `test`.",
        "--split", str, TABLE, ANY_DATA, "NAME"),
    Row("data.val",
        "Share of each client's rows for validation; default: 0.2, or a folder's own files."),
    Row("data.test",
        "Share of each client's rows for testing, or official for the test set of a dataset; "
        "default: official where there is one, else 0.2, or a folder's own files."),
    Row("data.few_test_rows", "Clients with fewer test rows are named in a remark; default: 10."),
    Row("data.seed", "Seed of the split; default: the run's."),
    Row("data.partition",
        "How rows are divided among clients; default: by the clients of the dataset, or its usual "
        "partition."),
    Row("data.partition.name",
        "By iid, pathological, dirichlet, two-level-dirichlet, latent, quantity-skew or natural.",
        "--partition", str, DATA, ANY_DATA),
    Row("data.partition.clients", "Number of clients.",
        "--clients", int, DATA, ANY_DATA),
    Row("data.partition.classes", "Classes per client (pathological).",
        "--classes", int, DATA, ANY_DATA),
    Row("data.partition.alpha", "Concentration (dirichlet, quantity-skew).",
        "--alpha", float, DATA, ANY_DATA),
    Row("data.limit",
        "Rows to keep of a dataset, over all splits in their own proportion; default: all.",
        "--limit", int, DATA, ANY_DATA, "ROWS"),
    Row("data.classes",
        "Classes to keep of a dataset, a number or a list by name or number (default: all); of a "
        "folder, their number (default: counted)."),
    Row("data.size", "Height and width to resize the images of a dataset to; default: their own.",
        "--image-size", int, DATA, ANY_DATA, "PIXELS"),
    Row("data.backbone",
        "Replace images by features of a pretrained network: efficientnet-lite0; default: no.",
        "--backbone", str, DATA, ANY_DATA, "NAME"),
    Row("data.augment",
        "Vary training images in every round: flip, crop; may be repeated; default: no.",
        "--augment", list[str], DATA, ANY_DATA, "NAME"),
    Row("data.retarget",
        "Score each client on another client's data; also a table of pairs; default: false.",
        "--retarget", bool, DATA, ANY_DATA),
    Row("method.lr", "Learning rate of the local optimizer.",
        "--lr", float, TRAINING, EXPERIMENT),
    Row("method.epochs", "Local epochs per round.",
        "--epochs", int, TRAINING, EXPERIMENT),
    Row("method.steps", "Local steps per round, instead of epochs.",
        "--steps", int, TRAINING, EXPERIMENT),
    Row("method.batch_size", 'Examples per step; "none": all.',
        "--batch-size", Toml, TRAINING, EXPERIMENT, "INTEGER"),
    Row("run.rounds", "Number of rounds; default: 50.",
        "--rounds", int, RUN, EXPERIMENT),
    Row("run.cohort", "Clients per round: a fraction (0.2) or a count (4); default: all.",
        "--cohort", Toml, RUN, EXPERIMENT, "NUMBER"),
    Row("run.backend", "auto, serial, vectorized or ray; default: auto.",
        "--backend", str, RUN, EXPERIMENT),
    Row("run.store",
        "Where private states live: memory or disk; never changes a result; default: memory.",
        "--store", str, RUN, ONE_RUN),
    Row("run.seed", "Seed of the run, and of the split unless data.seed is set; default: 0.",
        "--seed", int, RUN, ANY_DATA),
    Row("run.metrics",
        "Score by auroc, log_loss, ... or module:function; may be repeated, the first decides.",
        "--metric", list[str], RUN, EXPERIMENT, "NAME"),
    Row("run.weigh", "What counts equally in means: clients or examples; default: clients.",
        "--weigh", str, RUN, EXPERIMENT, "WHAT"),
    Row("run.serving_steps",
        "Gradient steps of every method that adapts when it serves a client; default: its own.",
        "--serving-steps", int, RUN, EXPERIMENT, "STEPS"),
    Row("run.uploads",
        "Precision of uploads: float32, float16 or bfloat16; half is half the bytes; default: "
        "float32.",
        "--uploads", str, RUN, EXPERIMENT, "PRECISION"),
    Row("run.chunk_size", "Clients that are stacked at once; default: by the size of the model."),
    Row("run.mode", "How a chunk is trained, stack or loop; default: by the kind of model."),
    Row("run.traced",
        "Whether steps are traced and replayed; default: if the run is long enough to pay for it."),
    Row("run.channels_last", "Whether mode loop stores images with channels last; default: true."),
    Row("run.device", "Where clients are trained, such as cuda; default: the processor."),
    Row("run.workers",
        "Threads; never changes a result; default: one per core (with Ray: one per actor)."),
    Row("run.address", "Address of a Ray cluster; default: Ray is started on this machine."),
    Row("run.actors", "Ray processes; default: 2."),
    Row("run.state_dir",
        "Where each machine of a Ray cluster keeps private states; default: a temporary "
        "directory."),
    Row("run.evaluate_every",
        "Rounds between evaluations on validation data; default: about 20 evaluations, or fewer.",
        "--evaluate-every", int, COMPARISON, COMPARE, "ROUNDS"),
    Row("run.checkpoint_every", "Rounds between checkpoints; default: 10."),
    Row("run.points",
        "Where in a round clients are scored on test data at the end: a list, the first is the "
        "headline and is used for validation; default: as the method's authors report it."),
    Row("run.modules",
        "Folder of your own modules, for names such as module:function; default: that of the "
        "config file."),
    Row("run.faults", "Faults to simulate (table `[run.faults]`); default: none."),
    Row("compare.seeds", "Runs per method, with seeds SEED, SEED + 1, ...; default: 3.",
        "--seeds", int, COMPARISON, COMPARE),
    Row("compare.choose",
        "Round that counts: the last, or the best on validation data; default: last.",
        "--choose", str, COMPARISON, COMPARE, "WHICH"),
    Row("compare.tune.trials",
        "Search hyperparameters on validation data, with this many trials per method.",
        "--tune", int, COMPARISON, COMPARE, "TRIALS"),
    Row("compare.tune.kind", "Kind of search, random or grid; default: random.",
        "--tune-kind", str, COMPARISON, COMPARE, "KIND"),
    Row("compare.budget", "Limits for every run (table `[compare.budget]`); default: none."),
    Row("compare.budget.gradients", "Stop a run after this many single-example gradients.",
        "--budget-gradients", float, COMPARISON, COMPARE, "NUMBER"),
    Row("compare.budget.bytes", "Stop a run after this many bytes, up and down together.",
        "--budget-bytes", int, COMPARISON, COMPARE, "NUMBER"),
    Row("compare.budget.seconds", "Stop a run after this many seconds of training.",
        "--budget-seconds", float, COMPARISON, COMPARE, "NUMBER"),
    Row("compare.cross_site", "Score each client's final model on each client's test data, too.",
        "--cross-site", bool, COMPARISON, COMPARE),
    Row("compare.leave_one_out",
        "Run the best federated method again without each client, for what it contributes.",
        "--leave-one-out", bool, COMPARISON, COMPARE),
    Row("compare.site_groups",
        "Table file with columns client and group: clients that are not independent count as one.",
        "--site-groups", str, COMPARISON, COMPARE, "FILE"),
    Row("compare.point",
        "Where in a round clients are scored; default: each method as its authors report it."),
    Row(None, "Write what is used of the data to this HTML page.",
        "--page", Path, OUTPUT, ("data",), "FILE"),
    Row("compare.examples",
        "Whether to keep predictions of single test examples, up to a limit; default: true."),
    Row(None, "Directory for the results.",
        "--out", Path, OUTPUT, EXPERIMENT, "DIR"),
    Row(None, "Replace the file.",
        "--overwrite", bool, OUTPUT, ("init",)),
    Row(None, "Replace the run that DIR holds.",
        "--overwrite", bool, OUTPUT, EXPERIMENT),
    Row(None, "Show how the run would be carried out, and stop.",
        "--explain-plan", bool, OUTPUT, ONE_RUN),
    Row(None, "Write TensorBoard event files.",
        "--tensorboard", Path, OUTPUT, RUNNING, "DIR"),
    Row(None, "Log to MLflow: sqlite:///mlflow.db.",
        "--mlflow", str, OUTPUT, RUNNING, "URI"),
    Row(None, "JSON lines on stdout: progress, then the result.",
        "--json", bool, OUTPUT, RUNNING, None, "as_json"),
    Row(None, "One JSON document on stdout, and nothing else.",
        "--json", bool, OUTPUT, SHOWING, None, "as_json"),
    Row(None, "Only the result: no progress, no remarks.",
        "--quiet", bool, OUTPUT, ALL),
)
# fmt: on


def rows_of(command: str) -> list[Row]:
    """List the flags of a command, in the order of its help."""
    taken = [row for row in ROWS if row.flag is not None and command in row.commands]
    return sorted(taken, key=lambda row: PANELS.index(row.panel))


def help_of(key: str) -> str | None:
    """Return the help of a config key; None if the table has no such key."""
    return next((row.help for row in ROWS if row.key == key), None)


def describes(section: str) -> Callable[[Section], Section]:
    """Return a decorator that lists a section's keys, with their help, in its docstring."""

    def document(kind: Section) -> Section:
        lines = [
            textwrap.fill(
                f"{field.name}: {help_of(f'{section}.{field.name}')}",
                width=100,
                initial_indent=" " * 8,
                subsequent_indent=" " * 12,
            )
            for field in fields(kind)
        ]
        kind.__doc__ = "\n".join([f"{kind.__doc__}\n\n    Attributes:", *lines, "    "])
        return kind

    return document
