// Light and dark themes. The colours are defined in the style sheet; charts look them up by name.

const THEME = "motet-theme";
const darkSystem = window.matchMedia("(prefers-color-scheme: dark)");
const systemTheme = () => (darkSystem.matches ? "dark" : "light");
const isDark = () => (document.documentElement.dataset.theme ?? systemTheme()) === "dark";

function remembered() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null; // some browsers have no storage for local files
  }
}

function remember(theme) {
  try {
    localStorage.setItem(THEME, theme);
  } catch {
    // the choice lasts until the page is closed
  }
}

function startTheme(redraw) {
  const button = document.getElementById("theme");
  const name = () => {
    button.textContent = isDark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  const theme = remembered();
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    remember(document.documentElement.dataset.theme);
    name();
    redraw();
  });
  darkSystem.addEventListener("change", () => {
    name();
    redraw();
  });
  name();
}

const NAMED = [
  "page", "panel", "ink", "soft", "rule", "grid",
  "low", "middle", "high", "opposite", // of heatmaps
  "few", "some", "many", // training examples
  "helped", "harmed", // clients
];
const numbered = (name, count) => Array.from({ length: count }, (_, place) => `${name}-${place}`);

// The drawing context of a chart: its width and the colours of the theme.
function lookOf(width, scheme) {
  const probe = element("span", { hidden: true });
  if (scheme) probe.style.colorScheme = scheme;
  document.body.append(probe);
  const color = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const look = Object.fromEntries(NAMED.map((name) => [name, color(name)]));
  look.series = numbered("series", 7).map(color);
  look.references = numbered("reference", 3).map(color);
  look.font = getComputedStyle(document.body).fontFamily;
  look.width = width;
  look.narrow = width < 560;
  look.scale = [[0, look.low], [0.5, look.middle], [1, look.high]];
  look.twoSided = [[0, look.opposite], [0.5, look.low], [1, look.high]];
  look.sizes = [[0, look.few], [0.5, look.some], [1, look.many]];
  probe.remove();
  return look;
}

// The colour at a fraction of the way along a list of colours.
function between(colors, share) {
  const place = Math.min(share, 0.999999) * (colors.length - 1);
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const [from, to] = [0, 1].map((step) => channels(colors[Math.floor(place) + step]));
  const mixed = from.map((channel, which) => channel + (place % 1) * (to[which] - channel));
  return `rgb(${mixed.map(Math.round).join(", ")})`;
}

const faded = (color, share) => color.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
