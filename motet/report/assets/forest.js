// The verdict on each client as a forest plot: one row per client, its gain and 95% interval.

const MOST_SITES = 40; // rows; with more clients, those that changed most
const ON_A_SCREEN = 15; // rows; with more, the axis is above them, where it is seen first
const STATES = {
  helped: { words: "helped", color: "helped", symbol: "triangle-up" },
  harmed: { words: "harmed", color: "harmed", symbol: "triangle-down" },
  "no difference": { words: "no difference that matters", color: "soft", symbol: "square" },
  "cannot tell": { words: "we cannot tell", color: "soft", symbol: "circle-open" },
};

charts.forest = {
  controls(part) {
    const pairs = part.sites.map(({ label, reference }) => [label, reference]);
    const labels = ranked(part).map(({ label }) => label)
      .filter((label) => pairs.some(([own]) => own === label));
    const references = REFERENCES.map((name) => part.references[name])
      .filter((label) => pairs.some(([, other]) => other === label));
    const [label, reference] = part.main ?? pairs[0];
    const options = (names) => names.map((name) => ({ value: name, label: name }));
    return [
      { name: "method", label: "Method", kind: "select", options: options(labels), start: label },
      { name: "reference", label: "compared with", kind: "choice", options: options(references), start: reference },
    ];
  },
  draw(part, study, { method, reference }, look) {
    const pair = part.sites.find((one) => one.label === method && one.reference === reference);
    const all = pair ? siteRows(pair) : [];
    const shown = mostChanged(all).sort((a, b) => a.gain - b.gain);
    const names = shown.map(({ site, small }) => (small ? `${site} *` : site));
    const long = shown.length > ON_A_SCREEN;
    return {
      traces: Object.keys(STATES).flatMap((state) =>
        [true, false].map((sure) => siteTrace(part, shown, state, sure, look))),
      height: Math.max(180, 24 * shown.length + 100),
      layout: {
        xaxis: {
          title: { text: `${gainUnit(part)}: gain over ${plain(reference)}, with its 95% interval` },
          ...zeroAxis(look), range: gainRange(part, shown),
          ...(long ? { side: "top" } : {}),
        },
        yaxis: {
          ...nameTicks(names, Infinity, look.narrow ? 12 : 24),
          range: [-0.7, shown.length - 0.3], zeroline: false,
        },
        showlegend: true,
        ...(long ? { legend: aboveTheAxis(shown.length) } : {}),
      },
      subject: `${method} compared with ${reference}`,
      finding: forestFinding(part, method, reference, all, shown),
      table: () => ({ columns: SITE_COLUMNS, rows: all.map((row) => SITE_COLUMNS.map((name) => row[name])) }),
    };
  },
};

const aboveTheAxis = (rows) => ({ orientation: "h", x: 0, y: 1 + 58 / (24 * rows), yanchor: "bottom" });

const SITE_COLUMNS = [
  "site", "examples", "gain", "low", "high", "p_value", "state", "sure", "in_runs", "small",
];
const percent = (part) => (part.metric === "accuracy" ? 100 : 1);
const gainUnit = (part) => (part.metric === "accuracy" ? "points of accuracy" : plain(part.metric));

const siteRows = (pair) => pair.rows.map((row) =>
  Object.fromEntries(SITE_COLUMNS.map((name, place) => [name, row[place]])));

// With one seed, the state is that of this run.
const stateOf = (part, row) => (part.seeds < 2 ? row.in_runs : row.state);

function mostChanged(rows) {
  if (rows.length <= MOST_SITES) return [...rows];
  const changed = (row) => Number(row.state === "helped" || row.state === "harmed");
  return [...rows]
    .sort((a, b) => changed(b) - changed(a) || Math.abs(b.gain) - Math.abs(a.gain))
    .slice(0, MOST_SITES);
}

// A gain of a single example must not fill the axis; very long intervals must not hide the rest.
function gainRange(part, rows) {
  const scale = percent(part);
  const gains = known(rows.map((row) => row.gain));
  const ends = known(rows.flatMap((row) => [row.low, row.high]));
  const widest = Math.max(...gains.map(Math.abs), 2 * part.margin, 1e-9);
  const [low, high] = extent([...ends, -part.margin, part.margin, ...gains]);
  return [scale * Math.max(low, -3 * widest) * 1.05, scale * Math.min(high, 3 * widest) * 1.05];
}

// With one seed nothing is more than "in this run", and no grade is shown.
const isSure = (part, row) => row.sure || part.seeds < 2;

function siteTrace(part, shown, state, sure, look) {
  const { words, color, symbol } = STATES[state];
  const places = shown.map((_, place) => place).filter((place) =>
    stateOf(part, shown[place]) === state && isSure(part, shown[place]) === sure);
  const rows = places.map((place) => shown[place]);
  const scale = percent(part);
  const fill = sure ? look[color] : between([look.page, look[color]], 0.45);
  return {
    type: "scatter", mode: "markers", name: sure ? words : `probably ${words}`, showlegend: rows.length > 0,
    x: rows.map((row) => scale * row.gain), y: places,
    error_x: {
      type: "data", symmetric: false, color: look[color], thickness: 1.6, width: 0,
      array: rows.map((row) => scale * (row.high - row.gain)),
      arrayminus: rows.map((row) => scale * (row.gain - row.low)),
    },
    marker: { size: 11, symbol, opacity: 1, color: fill, line: { color: look[color], width: 1.5 } },
    text: rows.map((row) => plain(row.site)),
    customdata: rows.map((row) => siteWords(part, row)),
    hovertemplate: "%{text}: %{customdata}<extra></extra>",
  };
}

function siteWords(part, row) {
  const scale = percent(part);
  const interval = row.low === null ? "no interval"
    : `${signed(scale * row.low)} to ${signed(scale * row.high)}`;
  const probably = isSure(part, row) ? "" : "probably ";
  return `${signed(scale * row.gain)} (${interval})<br>${probably}${STATES[stateOf(part, row)].words}` +
    `, ${counted(row.examples, "test example")}`;
}

function forestFinding(part, method, reference, all, shown) {
  if (!all.length) return `${method} and ${reference} were not compared client by client.`;
  const parts = Object.entries(STATES).flatMap(([state, { words }]) => [true, false].map((sure) => {
    const count = all.filter((row) => stateOf(part, row) === state && isSure(part, row) === sure).length;
    if (!count) return "";
    return state === "cannot tell" ? `for ${count} ${words}` : `${count} ${sure ? "" : "probably "}${words}`;
  })).filter(Boolean);
  const when = part.seeds < 2 ? "In this run, of" : "Of";
  const some = shown.length < all.length ? ` The ${shown.length} that changed most are shown.` : "";
  const small = shown.some((row) => row.small) ? " * few test examples." : "";
  return `${when} ${counted(all.length, "client")} under ${method} compared with ${reference}: ` +
    `${parts.join(", ")}.${some}${small}`;
}
