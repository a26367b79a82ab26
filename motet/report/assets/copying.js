// Copies of the tables for papers and spreadsheets, in the order in which they are shown.

const shownRows = (table) => [...table.rows].map((row) =>
  [...row.cells].map((cell) => {
    const text = [...cell.childNodes].filter((node) => !node.classList?.contains("remark"))
      .map((node) => node.textContent).join("");
    return { text: text.trim(), best: cell.classList.contains("best") };
  }));

const SPECIAL = {
  "\\": "\\textbackslash{}", "&": "\\&", "%": "\\%", $: "\\$", "#": "\\#", _: "\\_", "{": "\\{",
  "}": "\\}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "−": "$-$", "±": "$\\pm$",
  "–": "--", "▲": "$\\blacktriangle$", "▼": "$\\blacktriangledown$", "△": "$\\triangle$",
  "▽": "$\\triangledown$", "↑": "$\\uparrow$", "↓": "$\\downarrow$", "<": "$<$", ">": "$>$",
};
const latexText = (text) => [...text].map((letter) => SPECIAL[letter] ?? letter).join("");

const FORMATS = {
  LaTeX(table) {
    const [head, ...rows] = shownRows(table);
    const bold = ({ text, best }) => (best ? `\\textbf{${latexText(text)}}` : latexText(text));
    const line = (cells) => `${cells.map(bold).join(" & ")} \\\\`;
    const columns = `l${"r".repeat(head.length - 1)}`;
    return ["% needs booktabs and amssymb", `\\begin{tabular}{${columns}}`, "\\toprule", line(head),
      "\\midrule", ...rows.map(line), "\\bottomrule", "\\end{tabular}", ""].join("\n");
  },
  Markdown(table) {
    const [head, ...rows] = shownRows(table);
    const escaped = (text) => text.replace(/([\\|*_`<>[\]])/g, "\\$1").replaceAll("\n", " ");
    const line = (cells) =>
      `| ${cells.map(({ text, best }) => (best ? `**${escaped(text)}**` : escaped(text))).join(" | ")} |`;
    const rule = `|${head.map((_, place) => (place ? "---:" : "---")).join("|")}|`;
    return [line(head), rule, ...rows.map(line), ""].join("\n");
  },
  CSV(table) {
    const [head, ...rows] = shownRows(table);
    const texts = (cells) => cells.map(({ text }) => text);
    return csv({ columns: texts(head), rows: rows.map(texts) });
  },
};

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // older browsers, or no permission
    const area = element("textarea", { readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function makeCopyable(table) {
  const said = element("span", { role: "status", class: "note" });
  const buttons = Object.entries(FORMATS).map(([kind, made]) => {
    const label = `Copy “${table.dataset.name}” as ${kind}`;
    const click = () => copyText(made(table)).then(() => { said.textContent = `Copied as ${kind}.`; });
    return element("button", { type: "button", class: "quiet", "aria-label": label, click }, `Copy ${kind}`);
  });
  table.closest(".scroll").after(element("div", { class: "actions" }, ...buttons, said));
}
