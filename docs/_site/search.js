/* Part of the site's search page: guides rank before decisions, and previews work from a folder.
   Sphinx copies this file to the beginning of searchtools.js (html_search_scorer). */

const MOTET_WEIGHTS = [
  [/^(start|tutorials|guides)\//, 2],
  [/^(glossary|index|methods\/)/, 1.5],
  [/^(decisions\/|architecture)/, 0.3],
];

var Scorer = {
  score: ([page, , , , score]) =>
    score * (MOTET_WEIGHTS.find(([pattern]) => pattern.test(page)) ?? [null, 1])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

/* A page opened from a folder (file://) may not fetch another one, so previews are taken from
   page_texts.js, which holds the text of every page. It is loaded only where it is needed. */
if (window.location.protocol === "file:") {
  const texts = new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = "_static/page_texts.js";
    script.onload = () => resolve(window.MOTET_PAGE_TEXTS);
    script.onerror = () => resolve({});
    document.head.appendChild(script);
  });
  window.fetch = (url) =>
    texts.then((pages) => ({ text: () => pages[String(url).replace(/^\.\//, "")] ?? "" }));
}
