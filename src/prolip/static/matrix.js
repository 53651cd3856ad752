// A confusion matrix: rows are labels, columns predictions. Tab stops once; arrows move between cells.
import { h } from "./dom.js";

const LARGE = 40; // classes that are shown at once

export class ConfusionMatrix {
  // `open(row, column)` is called when a cell is chosen.
  constructor(open) {
    this.open = open;
    this.all = false; // whether all classes are shown, not only the most confused ones
    this.more = h("button", { type: "button", class: "link", hidden: true, onclick: () => this.toggle() });
    this.place = h("div", { class: "matrix", tabindex: "-1" });
    this.element = h("div", {}, this.more, this.place);
  }

  // `names` of K classes, and `counts`, a Map from "row,column" to the number of images.
  draw(names, counts) {
    Object.assign(this, { names, counts });
    const everyone = names.map((_, k) => k);
    const mistakes = everyone.map(() => 0);
    this.totals = everyone.map(() => 0);
    for (const [key, count] of counts) {
      const [row, column] = key.split(",");
      this.totals[row] += count;
      if (row !== column) for (const k of [row, column]) mistakes[k] += count;
    }
    const confused = [...everyone].sort((a, b) => mistakes[b] - mistakes[a] || a - b).slice(0, LARGE);
    const shown = this.all ? everyone : confused.sort((a, b) => a - b);
    this.more.hidden = names.length <= LARGE;
    this.more.textContent = this.all
      ? `Show the ${LARGE} most confused classes`
      : `Show all ${names.length} classes`;
    this.place.replaceChildren(this.table(shown));
  }

  toggle() {
    this.all = !this.all;
    this.draw(this.names, this.counts);
  }

  select(key) {
    for (const button of this.place.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.key === key));
  }

  table(shown) {
    const sizes = [
      [LARGE, "1.15rem"],
      [20, "1.5rem"],
      [10, "2rem"],
      [0, "2.6rem"],
    ];
    const head = shown.map((k) =>
      h("th", { scope: "col", title: this.names[k] }, h("span", {}, this.names[k])),
    );
    const body = shown.map((row) =>
      h(
        "tr",
        {},
        h("th", { scope: "row", title: this.names[row] }, this.names[row]),
        shown.map((column) => this.cell(row, column)),
      ),
    );
    const table = h(
      "table",
      { "aria-label": "Confusion matrix", onkeydown: (event) => this.walk(event) },
      h("thead", {}, h("tr", {}, h("th", {}, "label\u00a0↓ prediction\u00a0→"), head)),
      h("tbody", {}, body),
    );
    table.style.setProperty("--cell", sizes.find(([classes]) => shown.length > classes)?.[1] ?? "2.6rem");
    const first = table.querySelector("tbody button");
    if (first) first.tabIndex = 0;
    return table;
  }

  cell(row, column) {
    const count = this.counts.get(`${row},${column}`);
    if (!count) return h("td");
    const about = `${cellTitle(this.names, row, column)}: ${count} of ${this.totals[row]}`;
    const button = h(
      "button",
      {
        type: "button",
        tabindex: "-1",
        title: about,
        "aria-label": about,
        "aria-pressed": "false",
        "data-key": `${row},${column}`,
        onclick: () => this.open(row, column),
      },
      String(count),
    );
    button.style.setProperty("--share", count / this.totals[row]);
    return h("td", { class: row === column ? "right" : "wrong" }, button);
  }

  walk(event) {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const here = event.target.closest("td");
    if (!step || !here) return;
    event.preventDefault();
    const rows = here.closest("tbody").rows;
    let [row, column, next] = [here.parentElement.sectionRowIndex, here.cellIndex, null];
    while (!next) {
      row += step[0];
      column += step[1];
      if (!rows[row]?.cells[column]) return;
      next = rows[row].cells[column].querySelector("button");
    }
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

export function cellTitle(names, row, column) {
  return row === column ? `${names[row]}, correct` : `${names[row]} predicted as ${names[column]}`;
}
