// How each method is drawn in all charts: references in greys, others in colours. Every method has
// its own dash and symbol, so that colour is never the only difference.

const charts = {}; // by name: { controls(part, study), draw(part, study, state, look) }
// draw returns { traces, layout, height, subject, finding, table }: the subject describes the selection in
// the title of a downloaded file; the table is a function because it may be long.

const SYMBOLS = [
  "circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down", "pentagon",
];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const REFERENCES = ["local", "fedavg", "fedavg-ft"];
const REFERENCE_DASHES = ["dot", "dash", "dashdot"];

function styleOf(part, label, look) {
  const reference = REFERENCES.findIndex((name) => part.references[name] === label);
  if (reference >= 0) {
    return {
      color: look.references[reference],
      variable: `--reference-${reference}`,
      dash: REFERENCE_DASHES[reference],
      symbol: `${SYMBOLS[reference]}-open`,
      width: 1.7,
    };
  }
  const others = part.methods.filter((method) => !isReference(part, method.label));
  const place = others.findIndex((method) => method.label === label);
  const { length } = look.series;
  return {
    color: look.series[place % length],
    variable: `--series-${place % length}`, // the same colour as a CSS variable, which follows the theme
    dash: DASHES[Math.floor(place / length) % DASHES.length],
    symbol: SYMBOLS[place % SYMBOLS.length],
    width: 2.2,
  };
}

const methodOf = (part, label) => part.methods.find((method) => method.label === label);
const isReference = (part, label) => REFERENCES.some((name) => part.references[name] === label);

// The best method first; methods without numeric scores last.
function ranked(part) {
  const sign = part.higher ? 1 : -1;
  const worth = ({ mean: value }) => (value === null ? -Number.MAX_VALUE : sign * value);
  return [...part.methods].sort((a, b) => worth(b) - worth(a));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// Mean over seeds, client by client.
function valuesOf(part, label) {
  const { runs } = methodOf(part, label);
  return part.clients.map((_, place) => {
    const values = known(runs.map((run) => run.values[place]));
    return values.length ? mean(values) : null;
  });
}

// Each client's gain over a reference, averaged over the seeds that both have.
function gainsOf(part, label, reference) {
  const theirs = new Map(methodOf(part, reference).runs.map((run) => [run.seed, run.values]));
  const pairs = methodOf(part, label).runs.filter((run) => theirs.has(run.seed));
  const sign = part.higher ? 1 : -1;
  return part.clients.map((_, place) => {
    const differences = pairs
      .map((run) => [run.values[place], theirs.get(run.seed)[place]])
      .filter(([own, other]) => own !== null && other !== null)
      .map(([own, other]) => sign * (own - other));
    return differences.length ? mean(differences) : null;
  });
}

const methodOptions = (part) => ranked(part).map(({ label }) => ({ value: label, label }));

function methodControl(part) {
  const options = methodOptions(part);
  const start = part.main?.[0] ?? options[0].value; // the method of the headline
  return { name: "method", label: "Method", kind: "select", options, start };
}

// The rows of clients.parquet, for some of the methods.
const SCORE_COLUMNS = [
  "label", "method", "seed", "round", "split", "point", "client", "examples", "metric", "value", "loss",
  "diverged", "undefined", "higher_is_better",
];

function scoreRows(part, labels) {
  const { clients, examples, metric, split } = part;
  // Clients for which the metric is undefined have no value, and so no row.
  const about = ["false", String(part.higher)];
  const rowsOf = ({ label, method, point }, { seed, round, values, losses, diverged }) =>
    clients.map((client, place) => [label, method, seed, round, split, point, client,
      examples[place], metric, values[place], losses[place], String(diverged.includes(client)), ...about])
      .filter((_, place) => values[place] !== null);
  return labels.map((label) => methodOf(part, label))
    .flatMap((method) => method.runs.flatMap((run) => rowsOf(method, run)));
}
