// A figure: controls, a chart drawn when it scrolls into view, and its data as a table and files.

const CONFIG = { displayModeBar: false, responsive: false, showTips: false };
const PRINTED = 680; // pixels that fit on a sheet of A4
const EXPORTED = 900;

function makeFigure(frame, part) {
  const chart = charts[frame.dataset.chart];
  const study = part.studies[Number(frame.dataset.study)] ?? null;
  const title = frame.querySelector("h3").textContent;
  const finding = frame.querySelector(".finding");
  const plot = element("div", { class: "plot", role: "img" });
  const data = element("details", {}, element("summary", {}, "Data of this chart"));
  const state = {};
  const figure = { frame, plot, shown: false };

  const drawn = (look) => chart.draw(part, study, state, look);
  const asShown = () => drawn(lookOf(plot.clientWidth || EXPORTED));
  const fill = () => {
    if (data.open) data.replaceChildren(data.firstChild, ...dataTable(asShown().table()));
  };
  figure.describe = () => {
    finding.textContent = asShown().finding;
    plot.setAttribute("aria-label", `${title}. ${finding.textContent}`);
    fill();
  };
  figure.draw = (width = plot.clientWidth, scheme) => {
    if (!window.Plotly) return;
    const look = lookOf(width, scheme);
    const made = drawn(look);
    window.Plotly.react(plot, made.traces, layoutOf(made, look), CONFIG);
    plot.classList.add("drawn");
    Object.assign(figure, { shown: true, width });
  };
  const change = () => {
    figure.describe();
    if (figure.shown) figure.draw();
  };

  const controls = chart.controls(part, study).map((control) => makeControl(control, state, change));
  const legend = chart.lines ? [makeLines(chart.lines(part), part, state, change)] : [];
  const name = [part.data, study?.label ?? "", frame.dataset.chart];
  const saveDrawing = () => saveSvg(drawn, title, fileName(name, "svg"));
  const saveCsv = () => download(fileName(name, "csv"), "text/csv", csv(asShown().table()));
  data.addEventListener("toggle", fill);
  if (controls.length) frame.append(element("div", { class: "controls" }, ...controls));
  frame.append(plot, ...legend, element("div", { class: "actions" },
    saveButton("SVG", `Download “${title}” as SVG`, saveDrawing),
    saveButton("CSV", `Download the data of “${title}” as CSV`, saveCsv), data));
  return figure;
}

const saveButton = (kind, label, click) =>
  element("button", { type: "button", class: "quiet", "aria-label": label, click }, `↓ ${kind}`);

// For print and papers: always in light colours, with its title, at a fixed width.
async function saveSvg(drawn, title, name) {
  const look = lookOf(EXPORTED, "light");
  const made = drawn(look);
  const layout = layoutOf(made, look);
  const text = plain(made.subject ? `${title}: ${made.subject}` : title);
  Object.assign(layout, {
    paper_bgcolor: look.panel, height: layout.height + 44,
    margin: { ...layout.margin, t: layout.margin.t + 44 },
    title: { text, x: 0.01, y: 1, yanchor: "top", pad: { t: 14 }, font: { size: 17 } },
  });
  const size = { format: "svg", width: layout.width, height: layout.height };
  const address = await window.Plotly.toImage({ data: made.traces, layout, config: CONFIG }, size);
  download(name, "image/svg+xml", decodeURIComponent(address.slice(address.indexOf(",") + 1)));
}

function layoutOf({ layout, height }, look) {
  const { ink, soft, rule, grid, panel, font: family, narrow } = look;
  const axis = {
    gridcolor: grid, linecolor: rule, zerolinecolor: rule, tickcolor: rule,
    tickfont: { color: soft }, automargin: true, fixedrange: narrow,
  };
  const withTitle = (given) =>
    ({ ...axis, ...given, title: { standoff: 12, font: { size: 13 }, ...given?.title } });
  return {
    width: look.width, height, autosize: false, dragmode: narrow ? false : "zoom",
    margin: { t: 16, r: 16, b: 52, l: narrow ? 48 : 64 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family, size: narrow ? 12 : 13, color: ink },
    hovermode: "closest",
    hoverlabel: { bgcolor: panel, bordercolor: soft, font: { family, color: ink }, align: "left" },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
    ...layout, xaxis: withTitle(layout.xaxis), yaxis: withTitle(layout.yaxis),
  };
}
