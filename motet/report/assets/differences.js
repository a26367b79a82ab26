// Mean difference of each method from a reference, and how certain it is.

const DIFFERENCES = [
  "label", "reference", "mean", "low", "high", "p_value", "corrected", "grade",
  "clients_better", "clients_worse", "clients",
];

charts.differences = {
  controls(part) {
    const compared = new Set(part.differences.map((found) => found.reference));
    const options = REFERENCES.map((name) => part.references[name])
      .filter((label) => compared.has(label))
      .map((label) => ({ value: label, label }));
    return [{ name: "reference", label: "compared with", kind: "choice", options }];
  },
  draw(part, study, { reference }, look) {
    const found = part.differences
      .filter((row) => row.reference === reference && row.label !== reference && row.mean !== null)
      .sort((a, b) => a.mean - b.mean);
    const labels = found.map(({ label }) => label);
    return {
      traces: [differenceTrace(part, found, look)],
      height: Math.max(200, 30 * found.length + 80),
      layout: {
        xaxis: {
          title: { text: `${part.metric}: mean difference from ${plain(reference)}` },
          ...zeroAxis(look),
        },
        yaxis: {
          ...nameTicks(labels, Infinity, look.narrow ? 12 : 20),
          range: [-0.6, found.length - 0.4], zeroline: false,
        },
        showlegend: false,
      },
      subject: `compared with ${reference}`,
      finding: differencesFinding(found, reference),
      table: () => ({
        columns: DIFFERENCES,
        rows: found.toReversed().map((row) => DIFFERENCES.map((name) => row[name])),
      }),
    };
  },
};

const zeroAxis = (look) => ({
  zeroline: true, zerolinewidth: 1.5, zerolinecolor: look.ink, tickformat: "+.4~f",
  tickformatstops: [{ dtickrange: [5000, null], value: "+.3~s" }],
});

// Full marks for sure differences, pale ones for probable differences, paler ones for differences in
// these runs, hollow ones where the data cannot decide.
function differenceTrace(part, found, look) {
  const colors = found.map(({ label }) => styleOf(part, label, look).color);
  const inside = {
    sure: (color) => color,
    probable: (color) => between([look.page, color], 0.4),
    "in these runs": (color) => between([look.page, color], 0.15),
    none: () => look.page,
  };
  return {
    type: "scatter", mode: "markers",
    x: found.map((row) => row.mean),
    y: found.map((_, place) => place),
    error_x: {
      type: "data", symmetric: false, color: look.soft, thickness: 2, width: 0,
      array: found.map((row) => row.high - row.mean),
      arrayminus: found.map((row) => row.mean - row.low),
    },
    marker: {
      size: 12, symbol: "circle", opacity: 1, line: { color: colors, width: 2 },
      color: found.map(({ grade }, place) => inside[grade](colors[place])),
    },
    text: found.map((row) => plain(row.label)),
    customdata: found.map(({ low, high, corrected }) =>
      `${signed(low)} to ${signed(high)}, corrected p = ${corrected.toPrecision(2)}`),
    hovertemplate: "%{text}: %{x:+.3f}<br>%{customdata}<extra></extra>",
  };
}

function differencesFinding(found, reference) {
  const named = (words, grade, sign) => {
    const labels = found
      .filter((row) => row.grade === grade && sign * row.mean > 0)
      .map(({ label }) => label);
    return labels.length ? [`${words}: ${labels.toReversed().join(", ")}`] : [];
  };
  const unknown = found.filter(({ grade }) => grade === "none").length;
  const groups = [
    ...named("better (full marks)", "sure", 1),
    ...named("probably better (pale)", "probable", 1),
    ...named("better in these runs (paler)", "in these runs", 1),
    ...named("worse in these runs (paler)", "in these runs", -1),
    ...named("probably worse (pale)", "probable", -1),
    ...named("worse (full marks)", "sure", -1),
    ...(unknown ? [`no clear difference (hollow): ${unknown} of ${found.length}`] : []),
  ];
  return `Compared with ${reference}, ${groups.join("; ")}.`;
}
