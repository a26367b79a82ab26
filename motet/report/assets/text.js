// Text, numbers and files. Text from the data enters the page through textContent only.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// The plotting library interprets some markup in text, and takes text between dollar signs for a
// formula; this escapes both.
const plain = (text) =>
  String(text)
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll("$", "&#36;");

const shorten = (text, most = 18) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function score(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 99999.5) return value.toExponential(2).replace("e+", "e").replace("-", "−");
  const digits = Math.abs(value) < 9.9995 ? 3 : Math.abs(value) < 99.95 ? 1 : 0;
  return value.toFixed(digits).replace("-", "−");
}

const signed = (value) => (value > 0 ? `+${score(value)}` : score(value));

function scaled(value, units) {
  let place = 0;
  while (Math.abs(value) >= 999.5 && place < units.length - 1) {
    [value, place] = [value / 1000, place + 1];
  }
  return `${value.toFixed(place ? 1 : 0)}${units[place]}`;
}

const asBytes = (value) => scaled(value, [" B", " kB", " MB", " GB", " TB"]);
const asAmount = (value) => scaled(value, ["", "k", "M", "G"]);
const asSeconds = (value) => `${value.toFixed(value < 10 ? 1 : 0)} s`;
const counted = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

const known = (values) => values.filter((value) => value !== null && Number.isFinite(value));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return [low, high];
}

function quantile(values, share) {
  const ordered = [...values].sort((a, b) => a - b);
  const place = share * (ordered.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, ordered.length - 1);
  return ordered[below] + (place - below) * (ordered[above] - ordered[below]);
}

// Spreadsheets would evaluate text that starts like a formula.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csv = ({ columns, rows }) =>
  [columns, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";

function download(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function fileName(words, ending) {
  const plainWords = words.join("-").toLowerCase().replace(/[^a-z0-9]+/g, "-");
  return `${plainWords.replace(/^-|-$/g, "").slice(0, 80)}.${ending}`;
}
