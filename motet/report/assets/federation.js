// The data: labels per client, and how much clients differ.

const ORDERS = { class: "main label", size: "size", name: "name" };

charts.labels = {
  controls: () => [{
    name: "order", label: "clients by", kind: "choice",
    options: Object.entries(ORDERS).map(([value, label]) => ({ value, label })),
  }],
  draw(part, study, state, look) {
    const order = clientOrder(part, state.order);
    const classes = classNames(part);
    const counts = order.map((place) => part.federation.histograms[place]);
    const names = order.map((place) => part.clients[place]);
    return {
      traces: [labelMap(names, classes, counts, look)],
      height: rowsHeight(names.length),
      layout: {
        xaxis: { title: { text: "label" }, ...nameTicks(classes, look.narrow ? 20 : 40, 12), ...BARE },
        yaxis: {
          title: { text: counted(names.length, "client") }, autorange: "reversed",
          ...nameTicks(names, 60), ...BARE,
        },
      },
      finding: labelsFinding(counts, classes.length),
      table: () => ({
        columns: ["client", ...classes],
        rows: names.map((name, place) => [name, ...counts[place]]),
      }),
    };
  },
};

const BARE = { showgrid: false, zeroline: false };
const rowsHeight = (count) => Math.min(Math.max(count * (count <= 60 ? 19 : 6) + 90, 220), 760);
const cellTexts = (text) => ({ text, texttemplate: "%{text}", textfont: { size: 10 } });
const fits = (rows, columns, look) => rows <= 40 && columns <= 20 && !look.narrow;

function labelMap(names, classes, counts, look) {
  const texts = counts.map((row) => row.map((count) => (count ? String(count) : "")));
  const hover = (name) => (count) => `${plain(name)}: ${count.toLocaleString("en")}`;
  return {
    type: "heatmap", z: counts.map(sharesOf), zmin: 0, zmax: 1, colorscale: look.scale,
    xgap: 1, ygap: names.length <= 60 ? 1 : 0,
    ...(fits(names.length, classes.length, look) ? cellTexts(texts) : {}),
    hovertext: counts.map((row, place) => row.map(hover(names[place]))),
    hovertemplate: "%{hovertext} of %{x}, %{z:.0%} of its data<extra></extra>",
    colorbar: colorBar(look, "share of the client's data"),
  };
}

function classNames(part) {
  const { labels, histograms } = part.federation;
  return labels ?? (histograms.find(Boolean) ?? []).map((_, place) => String(place));
}

function sharesOf(counts) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  return counts.map((count) => (total ? count / total : null));
}

function clientOrder(part, by) {
  const { histograms, train } = part.federation;
  const places = part.clients.map((_, place) => place).filter((place) => histograms[place]);
  if (by === "name") return places;
  if (by === "size") return places.sort((a, b) => train[b] - train[a]);
  const most = (place) => Math.max(...histograms[place]);
  const main = (place) => histograms[place].indexOf(most(place));
  const strength = (place) => most(place) / train[place];
  return places.sort((a, b) => main(a) - main(b) || strength(b) - strength(a));
}

function labelsFinding(counts, classes) {
  const held = quantile(counts.map((row) => row.filter((count) => count > 0).length), 0.5);
  const main = quantile(counts.map((row) => Math.max(...sharesOf(row))), 0.5);
  return `The median client holds ${Math.round(held)} of ${counted(classes, "label")}; its most ` +
    `frequent one makes up ${Math.round(100 * main)}% of its training data.`;
}

charts.emd = {
  controls: () => [],
  draw(part, study, state, look) {
    const { emd, train, val, test } = part.federation;
    const points = against(train, emd, part.clients);
    return {
      traces: [{
        type: "scatter", mode: "markers", ...points,
        marker: { color: faded(look.series[0], 0.75), size: dotSize(part) },
        hovertemplate: "%{text}: distance %{y:.2f}<br>%{x} training examples<extra></extra>",
      }],
      height: 360,
      layout: {
        xaxis: sizeAxis(known(train)),
        yaxis: { title: { text: "distance of its labels" }, rangemode: "tozero", zeroline: false },
        showlegend: false,
      },
      finding: emdFinding(points),
      table: () => ({
        columns: ["client", "train", "val", "test", "distance"],
        rows: part.clients.map((client, place) =>
          [client, train[place], val[place], test[place], emd[place]]),
      }),
    };
  },
};

function emdFinding({ x, y }) {
  const [fewest, most] = extent(x);
  const middle = Math.round(quantile(x, 0.5)).toLocaleString("en");
  return `The label shares of a client differ from the overall ones by ${score(mean(y))} on average; clients ` +
    `hold from ${fewest.toLocaleString("en")} to ${counted(most, "training example")} ` +
    `(median ${middle}).`;
}
