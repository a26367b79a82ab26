// A tree of client groups: rounds run to the right, every leaf has its own line.

charts.tree = {
  controls: bySeed,
  draw(part, study, state, look) {
    const { nodes } = dataOf(study, state);
    const heights = treeHeights(nodes);
    const leaves = nodes.filter((node) => !nodes.some((other) => other.parent === node.id));
    const last = Math.max(...nodes.map((node) => node.round ?? 0), 1);
    return {
      traces: [branches(nodes, heights, look), groupMarks(nodes, heights, leaves, look)],
      height: Math.max(220, 46 * leaves.length + 80),
      layout: {
        xaxis: {
          title: { text: "round" }, tickformat: "d", dtick: niceStep(Math.max(last / 6, 1)),
          range: [-0.04 * last, last * (look.narrow ? 1.6 : 1.25)], zeroline: false,
        },
        yaxis: { showticklabels: false, ticks: "", ...BARE, range: [-0.5, leaves.length - 0.2] },
        showlegend: false,
      },
      finding: treeFinding(leaves),
      table: () => ({
        columns: ["node", "parent", "round", "label", "clients"],
        rows: nodes.map(({ id, parent, round, label, clients }) =>
          [id, parent, round, label, clients.join(" ")]),
      }),
    };
  },
};

// Place each leaf on its own line, and every other node halfway between its children.
function treeHeights(nodes) {
  const heights = new Map();
  let next = 0;
  const place = (node) => {
    const children = nodes.filter((other) => other.parent === node.id);
    children.forEach(place);
    const middle = () => mean(children.map((child) => heights.get(child.id)));
    heights.set(node.id, children.length ? middle() : next++);
  };
  nodes.filter((node) => node.parent === null).forEach(place);
  return heights;
}

function branches(nodes, heights, look) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const edges = nodes.filter((node) => byId.has(node.parent))
    .map((node) => [byId.get(node.parent), node]);
  return {
    type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: look.soft, width: 1.5 },
    x: edges.flatMap(([above, below]) => [above.round, below.round, below.round, null]),
    y: edges.flatMap(([above, below]) =>
      [heights.get(above.id), heights.get(above.id), heights.get(below.id), null]),
  };
}

function groupMarks(nodes, heights, leaves, look) {
  const fill = nodes.map((node) => (leaves.includes(node) ? look.series[0] : look.page));
  return {
    type: "scatter", mode: "markers+text", cliponaxis: false,
    x: nodes.map((node) => node.round ?? 0), y: nodes.map((node) => heights.get(node.id)),
    text: nodes.map((node) => plain(shorten(node.label, 26))),
    textposition: "top right", textfont: { size: 12.5 },
    marker: { size: 11, color: fill, line: { color: look.series[0], width: 2 } },
    customdata: nodes.map((node) => plain(shorten(node.clients.join(", "), 90))),
    hovertemplate: "%{text}<br>%{customdata}<extra></extra>",
  };
}

function treeFinding(leaves) {
  if (leaves.length < 2) return "The clients stayed in one group.";
  return `The clients end in ${leaves.length} groups, of ` +
    `${leaves.map((leaf) => leaf.clients.length).join(", ")}.`;
}
