// Sortable tables: click a heading, or press Enter on it.

function compare(a, b) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const [x, y] = [Number(a), Number(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
}

function sortRows(table, column, direction) {
  const body = table.tBodies[0];
  const value = (row) => row.cells[column].dataset.value;
  const unknown = (row) => value(row) === "";
  const sign = direction === "ascending" ? 1 : -1;
  const rows = [...body.rows].sort((a, b) =>
    unknown(a) || unknown(b) ? unknown(a) - unknown(b) : sign * compare(value(a), value(b)));
  body.append(...rows);
}

function makeSortable(table) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = element("button", { type: "button" }, heading.textContent);
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const opposite = { ascending: "descending", descending: "ascending" };
      const direction = opposite[heading.getAttribute("aria-sort")] ?? heading.dataset.first;
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", direction);
      sortRows(table, column, direction);
    });
  });
}

const MOST_ROWS = 500; // more would be too long to scroll; the file has all rows

function dataTable({ columns, rows }) {
  const shown = rows.slice(0, MOST_ROWS);
  const numeric = columns.map((_, place) => rows.some((row) => typeof row[place] === "number"));
  const cells = (tag, row) =>
    row.map((value, place) =>
      element(tag, numeric[place] ? { class: "number" } : {}, shownCell(value)));
  const table = element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...cells("th", columns))),
    element("tbody", {}, ...shown.map((row) => element("tr", {}, ...cells("td", row)))),
  );
  const named = { role: "region", "aria-label": "Data of the chart" };
  const region = element("div", { class: "scroll", tabindex: 0, ...named }, table);
  if (rows.length <= MOST_ROWS) return [region];
  const all = counted(rows.length, "row");
  const more = `The first ${MOST_ROWS} of ${all}; the CSV file has all of them.`;
  return [region, element("p", { class: "note" }, more)];
}

function shownCell(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(6)));
}
