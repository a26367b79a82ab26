// Starts the page: tables at once, charts when they scroll into view or nothing else happens.

const TOO_OLD = "This browser cannot unpack the plotting library. The data is in the table below.";

async function loadPlotting() {
  const packed = atob(document.getElementById("plotting").textContent);
  const bytes = new Uint8Array(packed.length);
  for (let place = 0; place < packed.length; place++) bytes[place] = packed.charCodeAt(place);
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}

function start() {
  const parts = JSON.parse(document.getElementById("charts").textContent);
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  document.querySelectorAll("table.sortable").forEach(makeCopyable);
  const figures = [...document.querySelectorAll("figure.chart")].map((frame) =>
    makeFigure(frame, parts[Number(frame.dataset.part)]));
  const found = new Map(figures.map((figure) => [figure.frame, figure]));
  startTheme(() => figures.filter((figure) => figure.shown).forEach((figure) => figure.draw()));

  const watchWidths = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const figure = found.get(target.parentElement);
      if (figure.shown && contentRect.width && contentRect.width !== figure.width) figure.draw();
    }
  });
  const ready = loadPlotting();
  const show = (figure) => {
    watchView.unobserve(figure.frame);
    waiting.delete(figure);
    figure.describe();
    return ready.then(() => figure.draw()).then(() => watchWidths.observe(figure.plot));
  };
  const waiting = new Set(figures);
  const watchView = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && waiting.has(found.get(target))) show(found.get(target));
    }
  }, { rootMargin: "400px" });
  figures.forEach((figure) => watchView.observe(figure.frame));
  // The others follow one by one while nothing else happens, so that a picture of the whole page,
  // or a search on it, finds them.
  const whenIdle = window.requestIdleCallback ?? ((then) => setTimeout(then, 100));
  const showNext = () => {
    const [next] = waiting;
    if (next) show(next).then(() => whenIdle(showNext));
  };
  ready.then(() => whenIdle(showNext)).catch(() => {});
  ready.catch(() => figures.forEach(({ plot }) => {
    plot.classList.add("drawn");
    plot.replaceChildren(element("p", { class: "notice" }, TOO_OLD));
  }));

  window.addEventListener("beforeprint", () => figures.forEach((figure) => {
    figure.describe();
    figure.draw(PRINTED, "light");
  }));
  window.addEventListener("afterprint", () => figures.forEach((figure) => figure.draw()));
}

start();
