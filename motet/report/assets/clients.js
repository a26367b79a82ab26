// Charts by client: scores, and gains over a reference.

const MOST_DOTS = 4000; // with more, draw boxes: dots would overlap and be slow

charts.spread = {
  controls: () => [],
  draw(part, study, state, look) {
    const methods = ranked(part);
    const dots = methods.length * part.clients.length <= MOST_DOTS;
    const trace = dots ? dotTrace : boxTrace;
    const rows = methods.map((_, place) => methods.length - 1 - place);
    const names = methods.map(({ label }) => plain(shorten(label, look.narrow ? 12 : 20)));
    return {
      traces: [
        ...methods.map(({ label }, place) => trace(part, label, rows[place], look)),
        meanMarks(methods, rows, look),
      ],
      height: Math.max(220, 34 * methods.length + 70),
      layout: {
        xaxis: { title: { text: `${part.metric} on ${part.split} data` }, zeroline: false },
        yaxis: {
          tickvals: rows, ticktext: names, range: [-0.6, methods.length - 0.4],
          showgrid: false, zeroline: false,
        },
        showlegend: false,
      },
      finding: spreadFinding(part, methods, dots),
      table: () => ({
        columns: SCORE_COLUMNS,
        rows: scoreRows(part, methods.map(({ label }) => label)),
      }),
    };
  },
};

function dotTrace(part, label, row, look) {
  const { color, symbol } = styleOf(part, label, look);
  const values = valuesOf(part, label);
  const places = known(values.map((value, place) => (value === null ? null : place)));
  return {
    type: "scatter", mode: "markers", name: plain(label),
    x: places.map((place) => values[place]),
    y: places.map((place) => row + jitter(place)),
    text: places.map((place) => plain(part.clients[place])),
    marker: { color: symbol.endsWith("open") ? color : faded(color, 0.75), symbol, size: 7 },
    hovertemplate: "%{text}: %{x:.3f}<extra>%{fullData.name}</extra>",
  };
}

// Place dots of equal value side by side, in the same position on every redraw.
const jitter = (place) => (((place * 0.618034) % 1) - 0.5) * 0.5;

function boxTrace(part, label, row, look) {
  const { color } = styleOf(part, label, look);
  const values = known(valuesOf(part, label));
  const at = (share) => [quantile(values, share)];
  return {
    type: "box", orientation: "h", y: [row], name: plain(label), width: 0.55, hoverinfo: "x",
    line: { color, width: 1.5 }, fillcolor: faded(color, 0.25),
    lowerfence: at(0.1), q1: at(0.25), median: at(0.5), q3: at(0.75), upperfence: at(0.9),
  };
}

function meanMarks(methods, rows, look) {
  return {
    type: "scatter", mode: "markers", x: methods.map((method) => method.mean), y: rows,
    marker: { symbol: "line-ns-open", size: 22, color: look.ink, line: { width: 3 } },
    hovertemplate: "mean %{x:.3f}<extra></extra>",
  };
}

function spreadFinding(part, methods, dots) {
  const [best] = methods;
  const worst = extent(known(valuesOf(part, best.label)))[part.higher ? 0 : 1];
  const marks = dots
    ? "Each mark is a client"
    : "A box holds the middle half of the clients, its whiskers eight of ten";
  const seeds = best.runs.length > 1 ? " (mean over seeds)" : "";
  return `${marks}${seeds}, the bar is their mean. ${best.label} has the best mean ${part.metric}, ` +
    `${score(best.mean)}; its worst client has ${score(worst)}.`;
}

charts.gains = {
  controls(part) {
    const names = { local: "training alone (Local)", "fedavg-ft": "FedAvg+" };
    const options = Object.entries(names)
      .filter(([name]) => part.references[name])
      .map(([name, label]) => ({ value: part.references[name], label }));
    const reference = { name: "reference", label: "compared with", kind: "choice", options };
    return [methodControl(part), reference];
  },
  draw(part, study, { method, reference }, look) {
    const gains = gainsOf(part, method, reference);
    const order = known(gains.map((gain, place) => (gain === null ? null : place)))
      .sort((a, b) => gains[b] - gains[a]);
    const names = order.map((place) => part.clients[place]);
    return {
      traces: [gainBars(part, order, gains, look), ...sizeLegend(part.federation.train, look)],
      height: 380,
      layout: {
        bargap: order.length > 80 ? 0 : 0.15,
        xaxis: {
          title: { text: "clients, from the largest gain to the largest loss" },
          showgrid: false, zeroline: false, ...nameTicks(names, look.narrow ? 0 : 30, 12),
        },
        yaxis: {
          title: { text: `${part.metric}: gain over ${plain(reference)}` }, ...zeroAxis(look),
          range: atLeast(part.margin, known(gains)),
        },
        showlegend: false,
      },
      subject: `${method} compared with ${reference}`,
      finding: gainsFinding(method, reference, order.map((place) => gains[place])),
      table: () => gainsTable(part, method, reference, order, gains),
    };
  },
};

// The gain of a single example must not fill the axis.
function atLeast(margin, values) {
  const [low, high] = extent([...values, -margin, margin]);
  return [1.08 * low, 1.08 * high];
}

function gainBars(part, order, gains, look) {
  const sizes = order.map((place) => part.federation.train[place]);
  return {
    type: "bar", x: order.map((_, rank) => rank), y: order.map((place) => gains[place]),
    marker: { color: sizeColors(sizes, look) },
    hovertext: order.map((place) => plain(part.clients[place])),
    customdata: sizes.map((size) => size ?? "unknown"),
    hovertemplate: "%{hovertext}: %{y:+.3f}<br>%{customdata} training examples<extra></extra>",
  };
}

function gainsFinding(method, reference, gains) {
  if (method === reference) return `${method} is the reference itself: choose another method or reference.`;
  if (!gains.length) return `${method} and ${reference} have no seed in common.`;
  const better = gains.filter((gain) => gain > 0).length;
  const worse = gains.filter((gain) => gain < 0).length;
  const same = gains.length - better - worse;
  return `Under ${method}, ${better} of ${counted(gains.length, "client")} do better than under ` +
    `${reference}, ${worse} worse${same ? `, ${same} the same` : ""}; the median gain is ` +
    `${signed(quantile(gains, 0.5))}.`;
}

function gainsTable(part, method, reference, order, gains) {
  const [own, theirs] = [valuesOf(part, method), valuesOf(part, reference)];
  const { train } = part.federation;
  return {
    columns: ["client", "training examples", method, reference, "gain"],
    rows: order.map((place) =>
      [part.clients[place], train[place], own[place], theirs[place], gains[place]]),
  };
}
