// Local data size: as a colour scale, as an axis, and in rank correlations.

const logSize = (size) => Math.log10(Math.max(size, 1));

// Colours on a logarithmic scale, and the legend that explains them.
function sizeColors(sizes, look) {
  const [low, high] = extent(known(sizes).map(logSize));
  const share = (size) => (logSize(size) - low) / (high - low || 1);
  return sizes.map((size) =>
    (known([size]).length ? between([look.few, look.some, look.many], share(size)) : look.soft));
}

function sizeLegend(sizes, look) {
  if (!known(sizes).length) return [];
  const [low, high] = extent(known(sizes).map(logSize));
  const tickvals = low === high ? [low] : [low, (low + high) / 2, high];
  const ticktext = tickvals.map((tick) => Math.round(10 ** tick).toLocaleString("en"));
  return [{
    type: "scatter", mode: "markers", x: [null], y: [null], hoverinfo: "skip",
    marker: {
      color: [low], colorscale: look.sizes, cmin: low, cmax: high > low ? high : low + 1,
      showscale: true, colorbar: { ...colorBar(look, "training examples"), tickvals, ticktext },
    },
  }];
}

function colorBar(look, text, tickformat = ".0%") {
  const font = { size: 12 };
  const below = { orientation: "h", y: -0.22, yanchor: "top" };
  const flat = { ...below, len: 1, title: { text, side: "bottom", font } };
  const upright = { len: 0.9, ticksuffix: "\u2002", title: { text, side: "right", font } };
  return { thickness: 10, outlinewidth: 0, tickformat, ...(look.narrow ? flat : upright) };
}

function sizeAxis(sizes) {
  const [low, high] = extent(sizes);
  const wide = high > 8 * Math.max(low, 1);
  return {
    title: { text: `training examples of the client${wide ? " (logarithmic)" : ""}` },
    type: wide ? "log" : "linear", zeroline: false, tickformat: ",d",
    ...(wide ? { dtick: high / low > 300 ? 1 : "D2" } : { dtick: wholeStep((high - low) / 6) }),
  };
}

// Examples are counted: a tick between two of them would be rounded to one of them.
const wholeStep = (rough) => Math.max(1, niceStep(Math.max(rough, 1)));

// Clients with both a size and a value.
function against(sizes, values, clients) {
  const places = clients.map((_, place) => place)
    .filter((place) => known([sizes[place], values[place]]).length === 2);
  return {
    x: places.map((place) => Math.max(sizes[place], 1)),
    y: places.map((place) => values[place]),
    text: places.map((place) => plain(clients[place])),
  };
}

const dotSize = (part) => (part.clients.length > 300 ? 5 : 9);

charts.sizes = {
  controls(part) {
    const options = [{ value: "", label: "nothing" }, ...methodOptions(part)];
    const start = part.references.local ?? "";
    return [methodControl(part), { name: "other", label: "beside", kind: "select", options, start }];
  },
  draw(part, study, { method, other }, look) {
    const { train } = part.federation;
    const labels = [other, method].filter((label, place) => label && (place || label !== method));
    const joined = labels.length > 1 && part.clients.length <= 120;
    return {
      traces: [
        ...(joined ? [joins(part, method, other, look)] : []),
        ...labels.map((label) => sizeTrace(part, label, look)),
      ],
      height: 400,
      layout: {
        xaxis: sizeAxis(known(train)),
        yaxis: { title: { text: `${part.metric} on ${part.split} data` }, zeroline: false },
        showlegend: true,
      },
      subject: labels.toReversed().join(" and "),
      finding: sizesFinding(part, method),
      table: () => sizesTable(part, labels),
    };
  },
};

function sizeTrace(part, label, look) {
  const { color, symbol } = styleOf(part, label, look);
  return {
    type: "scatter", mode: "markers", name: plain(label),
    ...against(part.federation.train, valuesOf(part, label), part.clients),
    marker: { color: symbol.endsWith("open") ? color : faded(color, 0.85), symbol, size: dotSize(part) },
    hovertemplate: "%{text}: %{y:.3f}<br>%{x} training examples<extra>%{fullData.name}</extra>",
  };
}

// A thin line from one method's value to the other's, client by client.
function joins(part, method, other, look) {
  const [own, theirs] = [valuesOf(part, method), valuesOf(part, other)];
  const { train } = part.federation;
  const places = part.clients.map((_, place) => place)
    .filter((place) => known([own[place], theirs[place]]).length === 2);
  return {
    type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false,
    line: { color: look.rule, width: 1.5 },
    x: places.flatMap((place) => [train[place], train[place], null]),
    y: places.flatMap((place) => [own[place], theirs[place], null]),
  };
}

function sizesFinding(part, label) {
  const { x, y } = against(part.federation.train, valuesOf(part, label), part.clients);
  return `Under ${label}, ${relation(x, y, "training examples", part.metric)}.`;
}

function sizesTable(part, labels) {
  const { train } = part.federation;
  const sizes = new Map(part.clients.map((client, place) => [client, train[place]]));
  const rows = scoreRows(part, labels).map((row) => [...row, sizes.get(row[6])]);
  return { columns: [...SCORE_COLUMNS, "training examples"], rows };
}

const FEWEST = 10; // clients

// Spearman's rank correlation, in words.
function relation(x, y, cause, effect) {
  if (x.length < FEWEST) return `${counted(x.length, "client")} are too few for a correlation with ${cause}`;
  const strength = correlation(ranks(x), ranks(y));
  if (!Number.isFinite(strength)) {
    return `${effect} and ${cause} have no correlation, because one of them is constant`;
  }
  const verb = strength > 0 ? "grows with" : "falls with";
  const depends = Math.abs(strength) < 0.2 ? "hardly depends on" : verb;
  return `${effect} ${depends} the number of ${cause} (rank correlation ${signed(strength)})`;
}

// Equal values share the mean of their ranks.
function ranks(values) {
  const order = values.map((_, place) => place).sort((a, b) => values[a] - values[b]);
  const found = new Array(values.length);
  for (let from = 0; from < order.length;) {
    let to = from;
    while (to + 1 < order.length && values[order[to + 1]] === values[order[from]]) to++;
    for (let rank = from; rank <= to; rank++) found[order[rank]] = (from + to) / 2;
    from = to + 1;
  }
  return found;
}

function correlation(x, y) {
  const centred = (values) => values.map((value) => value - mean(values));
  const product = (a, b) => a.reduce((total, value, place) => total + value * b[place], 0);
  const [a, b] = [centred(x), centred(y)];
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b));
}
