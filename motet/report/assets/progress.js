// Learning curves, and quality against cost.

const SPENT = {
  round: { label: "rounds", title: "round", of: (curve) => curve.round, text: String },
  bytes: {
    label: "bytes", title: "bytes sent, up and down", text: asBytes,
    of: (curve) => curve.bytes_up.map((up, place) => up + curve.bytes_down[place]),
  },
  gradients: {
    label: "gradients", title: "gradients of single examples", text: asAmount,
    of: (curve) => curve.gradients,
  },
  seconds: {
    label: "seconds", title: "seconds of training", text: asSeconds,
    of: (curve) => curve.seconds,
  },
};
const spentOptions = (names) => names.map((value) => ({ value, label: SPENT[value].label }));

const LOOKED_AT = {
  mean: "mean over clients", decile: "bottom decile", worst: "worst client", loss: "loss",
};
const LOOKS = [
  "round", "mean", "std", "decile", "worst", "loss",
  "bytes_up", "bytes_down", "gradients", "seconds",
];
const SHOWN_AT_FIRST = 8; // more lines at once are hard to read

charts.curves = {
  controls: () => [
    { name: "x", label: "against", kind: "choice", options: spentOptions(["round", "bytes", "seconds"]) },
    {
      name: "y", label: "of", kind: "select",
      options: Object.entries(LOOKED_AT).map(([value, label]) => ({ value, label })),
    },
  ],
  lines(part) {
    const leaders = ranked(part).map(({ label }) => label)
      .filter((label) => !isReference(part, label)).slice(0, SHOWN_AT_FIRST);
    return part.methods.filter(({ runs }) => runs.some(({ curve }) => curve.round?.length))
      .map(({ label }) => ({ label, on: isReference(part, label) || leaders.includes(label) }));
  },
  draw(part, study, state, look) {
    const lines = [...state.shown].map((label) => averaged(part, label, state))
      .filter(({ x }) => x.length);
    const ranges = {
      x: [0, 1.01 * Math.max(...lines.flatMap(({ x }) => x), 1e-9)],
      y: padded(lines.flatMap(({ low, high }) => [...low, ...high])),
    };
    const height = look.narrow ? 340 : 460;
    const margin = { t: 16, b: 52, l: look.narrow ? 48 : 64, r: look.narrow ? 12 : 150 };
    const quantity = state.y === "loss" ? "validation loss" : `validation ${part.metric}`;
    return {
      traces: lines.flatMap((line) => lineTraces(part, line, state, look)),
      height,
      layout: {
        margin,
        xaxis: {
          title: { text: SPENT[state.x].title }, range: ranges.x, zeroline: false,
          ...spentTicks(state.x, lines.flatMap(({ x }) => x)),
        },
        yaxis: {
          title: { text: `${quantity}, ${LOOKED_AT[state.y]}` }, range: ranges.y,
          zeroline: false, automargin: false,
        },
        annotations: look.narrow ? [] : endLabels(lineEnds(part, lines, look), ranges, {
          width: look.width - margin.l - margin.r, height: height - margin.t - margin.b,
        }),
        showlegend: false,
      },
      finding: curvesFinding(part, lines, state, quantity),
      table: () => curvesTable(part),
    };
  },
};

// A method's curve by round: mean over seeds, with the lowest and the highest seed.
function averaged(part, label, state) {
  const rounds = new Map();
  for (const { curve } of methodOf(part, label).runs) {
    const spent = curve.round ? SPENT[state.x].of(curve) : [];
    spent.forEach((x, place) => {
      const [round, y] = [curve.round[place], curve[state.y][place]];
      if (y !== null) rounds.set(round, [...(rounds.get(round) ?? []), { x, y }]);
    });
  }
  const order = [...rounds.keys()].sort((a, b) => a - b);
  const each = (fold, name) => order.map((round) => fold(rounds.get(round).map((look) => look[name])));
  return {
    label, rounds: order, x: each(mean, "x"), y: each(mean, "y"),
    low: each((values) => Math.min(...values), "y"),
    high: each((values) => Math.max(...values), "y"),
  };
}

function lineTraces(part, { label, x, y, low, high }, state, look) {
  const { color, dash, symbol, width } = styleOf(part, label, look);
  const band = {
    type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, line: { width: 0 },
    x: [...x, ...x.toReversed()], y: [...high, ...low.toReversed()],
    fill: "toself", fillcolor: faded(color, 0.16),
  };
  const line = {
    type: "scatter", mode: x.length > 1 ? "lines+markers" : "markers", x, y, name: plain(label),
    line: { color, dash, width }, marker: { color, symbol, size: 7, maxdisplayed: 10 },
    text: x.map((value) => SPENT[state.x].text(value)),
    hovertemplate: `${SPENT[state.x].title}: %{text}<br>%{y:.3f}<extra>%{fullData.name}</extra>`,
  };
  return methodOf(part, label).runs.length > 1 ? [band, line] : [line];
}

const lineEnds = (part, lines, look) =>
  lines.map(({ label, x, y }) =>
    ({ x: x.at(-1), y: y.at(-1), text: label, color: styleOf(part, label, look).color }));

function spentTicks(name, values) {
  if (name === "round") return { tickformat: "d" };
  const most = Math.max(...values, 1e-9);
  const step = niceStep(most / 5);
  const tickvals = Array.from({ length: Math.floor(most / step) + 1 }, (_, place) => place * step);
  const text = (value) => SPENT[name].text(value).replace(/\.0(?=\D)/, "");
  return { tickvals, ticktext: tickvals.map(text) };
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
}

function curvesFinding(part, lines, state, quantity) {
  if (!lines.length) return "No line is shown: choose methods below the chart.";
  const less = state.y === "loss" || !part.higher;
  const [best] = [...lines].sort((a, b) => (less ? 1 : -1) * (a.y.at(-1) - b.y.at(-1)));
  const several = part.methods.some(({ runs }) => runs.length > 1);
  return `${best.label} ends with the ${less ? "lowest" : "highest"} ${quantity} ` +
    `(${LOOKED_AT[state.y]}), ${score(best.y.at(-1))} after round ${best.rounds.at(-1)}.` +
    `${several ? " Bands reach from the lowest to the highest seed." : ""}`;
}

function curvesTable(part) {
  const rows = part.methods.flatMap(({ label, runs }) =>
    runs.flatMap(({ seed, curve }) =>
      (curve.round ?? []).map((_, place) => [label, seed, ...LOOKS.map((name) => curve[name][place])])));
  return { columns: ["label", "seed", ...LOOKS], rows };
}

const MOST_BESIDE = 12; // labels beside their marks

charts.costs = {
  controls: () => [
    { name: "x", label: "cost in", kind: "choice", options: spentOptions(["bytes", "gradients", "seconds"]) },
  ],
  lines: (part) => part.methods.map(({ label }) => ({ label, on: true })),
  draw(part, study, state, look) {
    const methods = part.methods.filter(({ label, mean: value, cost }) =>
      state.shown.has(label) && known([cost[state.x], value]).length === 2);
    const x = methods.map(({ cost }) => cost[state.x]);
    const ranges = { x: padded([0, ...x], 0.05), y: padded(methods.map((method) => method.mean), 0.12) };
    // Many labels would hide each other: they go to the right, each with a thin line to its mark.
    const aside = methods.length > MOST_BESIDE && !look.narrow;
    const height = aside ? Math.max(400, LINE * methods.length + 90) : 400;
    const margin = { t: 16, b: 52, l: 64, r: aside ? 150 : 24 };
    const room = { width: look.width - margin.l - margin.r, height: height - margin.t - margin.b };
    return {
      traces: methods.map((method) => costTrace(part, method, state.x, look)),
      height,
      layout: {
        margin,
        xaxis: {
          title: { text: `${SPENT[state.x].title}, a whole run` }, range: ranges.x,
          zeroline: false, ...spentTicks(state.x, x),
        },
        yaxis: {
          title: { text: `mean ${part.metric}, ${part.split}` }, range: ranges.y,
          zeroline: false, automargin: false,
        },
        annotations: (aside ? endLabels : pointLabels)(costPoints(part, methods, state.x, look), ranges, room),
        showlegend: false,
      },
      finding: costsFinding(part, methods, state.x),
      table: () => ({
        columns: ["label", "mean", "bytes", "gradients", "seconds"],
        rows: part.methods.map(({ label, mean: value, cost }) =>
          [label, value, cost.bytes, cost.gradients, cost.seconds]),
      }),
    };
  },
};

function costTrace(part, { label, mean: value, cost }, name, look) {
  const { color, symbol } = styleOf(part, label, look);
  return {
    type: "scatter", mode: "markers", x: [cost[name]], y: [value], name: plain(label),
    text: [SPENT[name].text(cost[name])], marker: { color, symbol, size: 11 }, cliponaxis: false,
    hovertemplate: "%{text}: %{y:.3f}<extra>%{fullData.name}</extra>",
  };
}

const costPoints = (part, methods, name, look) =>
  methods.map(({ label, mean: value, cost }) =>
    ({ x: cost[name], y: value, text: label, color: styleOf(part, label, look).color }));

function costsFinding(part, methods, name) {
  if (!methods.length) return "No method is shown: choose some below the chart.";
  const order = ranked(part).filter((method) => methods.includes(method));
  const [best] = order;
  const cheaper = order.find((method) => method.cost[name] < best.cost[name]);
  const text = (method) => `${score(method.mean)} for ${SPENT[name].text(method.cost[name])}`;
  const beside = cheaper
    ? `Of the methods that cost less, ${cheaper.label} is best: ${text(cheaper)}.`
    : "No method costs less.";
  return `${best.label} has the best mean ${part.metric}: ${text(best)}. ${beside}`;
}
