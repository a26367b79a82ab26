// Studies that methods provide, drawn by kind; no method is special here.

function seedControl(study) {
  if (study.seeds.length < 2) return [];
  const options = study.seeds.map((seed, place) => ({ value: String(place), label: String(seed) }));
  return [{ name: "version", label: "Seed", kind: "choice", options }];
}

const bySeed = (part, study) => seedControl(study);
const dataOf = (study, state) => study.data[Number(state.version ?? 0)];

charts.matrix = {
  controls(part, study) {
    const { frames } = study.data[0];
    const options = frames.map(({ label }, place) => ({ value: String(place), label }));
    const start = options.at(-1).value;
    const slider = { name: "frame", label: "Moment", kind: "slider", options, start };
    return [...(options.length > 1 ? [slider] : []), ...seedControl(study)];
  },
  draw(part, study, state, look) {
    const { names, frames, quantity } = dataOf(study, state);
    const { label, values } = frames[Math.min(Number(state.frame ?? 0), frames.length - 1)];
    const width = Math.min(look.width, 620);
    const axis = { ...nameTicks(names, look.narrow ? 15 : 40, 10), ...BARE, constrain: "domain" };
    return {
      traces: [matrixMap(names, values, quantity, matrixRange(frames), look)],
      height: width * 0.86 + (look.narrow ? 90 : 20),
      layout: {
        width, plot_bgcolor: look.grid, xaxis: axis,
        yaxis: { ...axis, autorange: "reversed", scaleanchor: "x" },
      },
      subject: label,
      finding: `${capital(label)}: ${matrixFinding(names, values, quantity)}.`,
      table: () => ({
        columns: ["moment", "row", "column", quantity], rows: matrixRows(names, frames),
      }),
    };
  },
};

// The same colours for all moments; around 0 where there are negative values.
function matrixRange(frames) {
  const [low, high] = extent(known(frames.flatMap(({ values }) => values.flat())));
  const reach = Math.max(-low, high);
  return low < 0 ? [-reach, reach] : [low, high];
}

function matrixMap(names, values, quantity, [zmin, zmax], look) {
  const gap = names.length <= 60 ? 1 : 0;
  return {
    type: "heatmap", z: values, zmin, zmax, colorscale: zmin < 0 ? look.twoSided : look.scale,
    hoverongaps: false, xgap: gap, ygap: gap,
    hovertext: names.map((row) => names.map((column) => `${plain(row)} ← ${plain(column)}`)),
    hovertemplate: "%{hovertext}: %{z:.3f}<extra></extra>",
    colorbar: colorBar(look, plain(quantity), ".2~f"),
  };
}

function matrixFinding(names, values, quantity) {
  const cells = names.flatMap((_, y) => names.map((__, x) => ({ y, x, value: values[y][x] })))
    .filter(({ y, x, value }) => y !== x && value !== null);
  if (!cells.length) return `no ${quantity} is known between different clients`;
  const [low, high] = extent(cells.map(({ value }) => value));
  if (low === high) return `between different clients, the ${quantity} is ${score(low)} everywhere`;
  const { y, x } = cells.find(({ value }) => value === high);
  return `the largest ${quantity} between two of ${names.length}, ${score(high)}, is ` +
    `${names[y]} ← ${names[x]}`;
}

const matrixRows = (names, frames) =>
  frames.flatMap(({ label, values }) =>
    names.flatMap((row, y) => names.map((column, x) => [label, row, column, values[y][x]])))
    .filter((cells) => cells[3] !== null);

charts.per_client = {
  controls: bySeed,
  draw(part, study, state, look) {
    const { quantity, values } = dataOf(study, state);
    const own = part.clients.map((client) => (Object.hasOwn(values, client) ? values[client] : null));
    const { train } = part.federation;
    const sized = known(train).length > 0;
    const sizes = sized ? train : part.clients.map((_, place) => place + 1);
    const points = against(sizes, own, part.clients);
    const { color, symbol } = styleOf(part, study.label, look);
    const hover = `%{text}: %{y:.3f}${sized ? "<br>%{x} training examples" : ""}<extra></extra>`;
    return {
      traces: [{
        type: "scatter", mode: "markers", ...points, hovertemplate: hover,
        marker: { color: faded(color, 0.8), symbol, size: dotSize(part) },
      }],
      height: 360,
      layout: {
        xaxis: sized ? sizeAxis(known(sizes)) : { title: { text: "client" }, zeroline: false },
        yaxis: { title: { text: plain(quantity) }, zeroline: false },
        showlegend: false,
      },
      finding: perClientFinding(points, quantity, sized),
      table: () => ({
        columns: ["client", "training examples", quantity],
        rows: part.clients.map((client, place) => [client, train[place], own[place]])
          .filter((row) => row[2] !== null),
      }),
    };
  },
};

function perClientFinding({ x, y }, quantity, sized) {
  if (!y.length) return `No client has a ${quantity}.`;
  const [low, high] = extent(y);
  const related = sized ? `; ${relation(x, y, "training examples", quantity)}` : "";
  return `From ${score(low)} to ${score(high)}, median ${score(quantile(y, 0.5))}${related}.`;
}

charts.lines = {
  controls: bySeed,
  draw(part, study, state, look) {
    const { x, y, series } = dataOf(study, state);
    const lines = Object.entries(series).map(([name, points]) => ({ name, points }));
    return {
      traces: lines.map((line, place) => seriesTrace(line, place, look)),
      height: 380,
      layout: {
        xaxis: { title: { text: plain(x) }, zeroline: false },
        yaxis: { title: { text: plain(y) }, zeroline: false },
        showlegend: lines.length > 1,
      },
      finding: seriesFinding(lines, x, y),
      table: () => ({
        columns: ["series", x, y],
        rows: lines.flatMap(({ name, points }) => points.map((point) => [name, ...point])),
      }),
    };
  },
};

function seriesTrace({ name, points }, place, look) {
  const color = look.series[place % look.series.length];
  return {
    type: "scatter", mode: "lines+markers", name: plain(name),
    x: points.map((point) => point[0]), y: points.map((point) => point[1]),
    line: { color, width: 2.2, dash: DASHES[place % DASHES.length] },
    marker: { color, symbol: SYMBOLS[place % SYMBOLS.length], size: 8 },
  };
}

function seriesFinding(lines, x, y) {
  const all = lines.flatMap(({ name, points }) => points.map(([at, value]) => ({ name, at, value })))
    .filter(({ value }) => value !== null);
  if (!all.length) return `There is no ${y}.`;
  const top = all.reduce((best, one) => (one.value > best.value ? one : best));
  return `The highest ${y}, ${score(top.value)}, is reached by ${top.name} at ${x} ${top.at}.`;
}

charts.shares = {
  controls: bySeed,
  draw(part, study, state, look) {
    const { quantity, parts, clients, values } = dataOf(study, state);
    const means = parts.map((_, place) => mean(known(values.map((row) => row[place]))));
    const each = parts.map((name, place) => `${name} ${score(means[place])}`);
    return {
      traces: [shareMap(parts, clients, values, look)],
      height: rowsHeight(clients.length),
      layout: {
        xaxis: { ...nameTicks(parts, 40, look.narrow ? 7 : 16), ...BARE },
        yaxis: { ...nameTicks(clients, 60), ...BARE, autorange: "reversed" },
      },
      finding: `Mean ${quantity}: ${each.join(", ")}.`,
      table: () => ({
        columns: ["client", ...parts],
        rows: clients.map((client, place) => [client, ...values[place]]),
      }),
    };
  },
};

function shareMap(parts, clients, values, look) {
  const texts = values.map((row) => row.map((value) => value?.toFixed(2) ?? ""));
  return {
    type: "heatmap", z: values, zmin: 0, zmax: 1, colorscale: look.scale,
    xgap: 1, ygap: clients.length <= 60 ? 1 : 0,
    ...(fits(clients.length, parts.length, look) ? cellTexts(texts) : {}),
    hovertext: clients.map((client) => parts.map((name) => `${plain(client)}, ${plain(name)}`)),
    hovertemplate: "%{hovertext}: %{z:.3f}<extra></extra>",
    colorbar: colorBar(look, "share"),
  };
}
