// Starts the page: tables at once, charts when they scroll into view.

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
  const watchView = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watchView.unobserve(target);
      const figure = found.get(target);
      figure.describe();
      ready.then(() => figure.draw()).then(() => watchWidths.observe(figure.plot));
    }
  }, { rootMargin: "400px" });
  figures.forEach((figure) => watchView.observe(figure.frame));
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
