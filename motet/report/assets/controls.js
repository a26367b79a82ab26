// The controls of a figure. All of them work by keyboard.

function makeControl(control, state, change) {
  state[control.name] = control.start ?? control.options[0].value;
  const set = (value) => {
    state[control.name] = value;
    change();
  };
  const make = { select: makeSelect, choice: makeChoice, slider: makeSlider }[control.kind];
  return make(control, state[control.name], set);
}

function makeSelect({ label, options }, chosen, set) {
  const choices = options.map(({ value, label: text }) =>
    element("option", { value, selected: value === chosen }, text));
  const select = element("select", { change: (event) => set(event.target.value) }, ...choices);
  return element("label", {}, element("span", { class: "what" }, label), select);
}

let groups = 0;
function makeChoice({ label, options }, chosen, set) {
  const name = `choice-${groups++}`;
  const buttons = options.map(({ value, label: text }) => {
    const checked = value === chosen;
    const input = element("input", { type: "radio", name, value, checked, change: () => set(value) });
    return element("label", {}, input, element("span", {}, text));
  });
  const choice = element("div", { class: "choice" }, ...buttons);
  return element("fieldset", {}, element("legend", {}, label), choice);
}

function makeSlider({ label, options }, chosen, set) {
  const output = element("output");
  const update = (range) => {
    const { value, label: moment } = options[Number(range.value)];
    output.textContent = moment;
    range.setAttribute("aria-valuetext", moment);
    return value;
  };
  const bounds = { type: "range", min: 0, max: options.length - 1, step: 1, value: chosen };
  const range = element("input", { ...bounds, input: (event) => set(update(event.target)) });
  update(range);
  return element("label", {}, element("span", { class: "what" }, label), range, output);
}

// The legend: one button per method, which shows or hides it.
function makeLines(lines, part, state, change) {
  state.shown = new Set(lines.filter(({ on }) => on).map(({ label }) => label));
  const look = lookOf(0);
  const items = lines.map(({ label }) => {
    const pressed = () => ({ "aria-pressed": String(state.shown.has(label)) });
    const button = element("button", { type: "button", ...pressed() },
      swatch(styleOf(part, label, look)), label);
    button.addEventListener("click", () => {
      if (!state.shown.delete(label)) state.shown.add(label);
      button.setAttribute("aria-pressed", pressed()["aria-pressed"]);
      change();
    });
    return element("li", {}, button);
  });
  return element("ul", { class: "lines", "aria-label": "Methods shown" }, ...items);
}

const SHAPES = {
  circle: "M10 8a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
  square: "M10 4h8v8h-8z",
  diamond: "M14 3l5 5l-5 5l-5-5z",
  "triangle-up": "M14 3l5 9h-10z",
  "triangle-down": "M14 13l5-9h-10z",
  pentagon: "M14 3l5 4l-2 6h-6l-2-6z",
  cross: "M12.5 3h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
  x: "M10 5.5l1.5-1.5 2.5 2.5 2.5-2.5 1.5 1.5-2.5 2.5 2.5 2.5-1.5 1.5-2.5-2.5-2.5 2.5-1.5-1.5 2.5-2.5z",
};
const STROKES = { solid: "none", dash: "6 3", dot: "2 3", dashdot: "6 3 2 3", longdash: "9 3" };

// A sample of the method's line with its symbol, in its colour of the current theme.
function swatch({ variable, dash, symbol }) {
  const open = symbol.endsWith("-open");
  const line = drawing("line", {
    x1: 0, y1: 8, x2: 28, y2: 8, stroke: "currentColor", "stroke-width": 2,
    "stroke-dasharray": STROKES[dash],
  });
  const shape = drawing("path", {
    d: SHAPES[symbol.replace("-open", "")], fill: open ? "none" : "currentColor",
    stroke: "currentColor", "stroke-width": open ? 1.5 : 0.5,
  });
  const made = drawing("svg", { width: 28, height: 16, viewBox: "0 0 28 16", "aria-hidden": "true" });
  made.style.color = `var(${variable})`;
  made.append(line, shape);
  return made;
}

function drawing(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
