"use strict";
// What is shown comes from the page's own data. Names are text: nothing here writes markup.
const data = JSON.parse(document.getElementById("data").textContent);
const SHOWN = 60; // pictures of a cell
const LARGE = 40; // classes that a matrix shows at once

function element(name, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

// Text that may break after the marks that names are made of.
function breakable(made, text) {
  for (const part of text.split(/(?<=[_/.-])/)) made.append(part, document.createElement("wbr"));
  return made;
}

const percent = (value) => (100 * value).toFixed(value > 0.99 || value < 0.01 ? 1 : 0) + "\u00a0%";

function lines(image) {
  if (image.lines) return image.lines;
  const truth = data.classes[image.truth], answer = data.classes[image.answer];
  if (image.truth === image.answer) return [[`${truth}, ${percent(image.probability)}`, "good"]];
  return [[`is ${truth}`, ""], [`taken for ${answer}, ${percent(image.probability)}`, "bad"]];
}

function shot(number) {
  const image = data.images[number], figure = element("figure", null, { class: "shot" });
  const frame = element("div", null, { class: "frame" });
  const told = lines(image);
  if (image.src) {
    frame.append(element("img", null, { src: image.src, alt: told.map((line) => line[0]).join(", ") }));
  } else frame.textContent = "no picture here";
  figure.append(frame);
  for (const [text, tone] of told) figure.append(breakable(element("div", null, { class: "line " + tone }), text));
  figure.append(breakable(element("div", null, { class: "name", title: image.name }), image.name));
  return figure;
}

for (const place of document.querySelectorAll("[data-images]")) {
  place.append(...place.dataset.images.split(",").map((number) => shot(Number(number))));
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") === "descending" || (column === 0 && !head.hasAttribute("aria-sort"));
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [parseFloat(value(a, column)), parseFloat(value(b, column))];
      const order = column === 0 || (isNaN(x) && isNaN(y)) ? value(a, column).localeCompare(value(b, column))
        : (isNaN(x) ? -1 : x) - (isNaN(y) ? -1 : y);
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows);
  }));
}

for (const button of document.querySelectorAll("button.link")) {
  const text = button.textContent;
  button.textContent = "";
  breakable(button, text);
}

const matrix = document.getElementById("matrix");
const cells = new Map(); // "truth,answer": numbers of images, the surest first
if (matrix) {
  data.images.forEach((image, number) => {
    if (image.truth === undefined) return;
    const key = image.truth + "," + image.answer;
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push(number);
  });
  for (const numbers of cells.values()) {
    numbers.sort((a, b) => data.images[b].probability - data.images[a].probability);
  }
  const everyone = data.classes.map((_, k) => k);
  const wrong = everyone.map(() => 0);
  for (const image of data.images) {
    if (image.truth !== image.answer) { wrong[image.truth] += 1; wrong[image.answer] += 1; }
  }
  const confused = [...everyone].sort((a, b) => wrong[b] - wrong[a] || a - b).slice(0, LARGE).sort((a, b) => a - b);
  draw(everyone.length > LARGE ? confused : everyone);
  if (everyone.length > LARGE) {
    const all = `Show all ${everyone.length} classes`, some = `Show the ${LARGE} most confused classes`;
    const button = element("button", all, { class: "link" });
    button.addEventListener("click", () => {
      const more = button.textContent === all;
      draw(more ? everyone : confused);
      button.textContent = more ? some : all;
    });
    matrix.before(button);
  }
  for (const button of document.querySelectorAll("[data-cell]")) {
    button.addEventListener("click", () => open(button.dataset.cell));
  }
}

function draw(shown) {
  const size = shown.length > LARGE ? "1.15rem" : shown.length > 20 ? "1.5rem" : shown.length > 10 ? "2rem" : "2.8rem";
  const table = element("table"), head = element("tr"), body = element("tbody");
  table.style.setProperty("--cell", size);
  head.append(element("th", "truth \u2193 answer \u2192"));
  for (const k of shown) {
    const cell = element("th", null, { scope: "col", title: data.classes[k] });
    cell.append(element("span", data.classes[k]));
    head.append(cell);
  }
  const total = data.classes.map(() => 0);
  for (const image of data.images) if (image.truth !== undefined) total[image.truth] += 1;
  for (const truth of shown) {
    const row = element("tr");
    row.append(element("th", data.classes[truth], { scope: "row", title: data.classes[truth] }));
    for (const answer of shown) {
      const cell = element("td", null, truth === answer ? { class: "own" } : {});
      const numbers = cells.get(truth + "," + answer);
      if (numbers) {
        const share = numbers.length / total[truth];
        cell.style.background = `rgba(var(--${truth === answer ? "good" : "bad"}-rgb), ${0.15 + 0.6 * share})`;
        const label = `${data.classes[truth]}, taken for ${data.classes[answer]}: ${numbers.length} of ${total[truth]}`;
        cell.append(element("button", numbers.length, {
          "data-key": truth + "," + answer, "aria-label": label, title: label, tabindex: "-1", "aria-pressed": "false",
        }));
      }
      row.append(cell);
    }
    body.append(row);
  }
  const top = element("thead");
  top.append(head);
  table.append(top, body);
  matrix.replaceChildren(table);
  const first = table.querySelector("tbody button");
  if (first) first.tabIndex = 0;
  table.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) open(button.dataset.key);
  });
  table.addEventListener("keydown", (event) => walk(event, table));
}

// One stop of the Tab key for the whole matrix; arrows go to the next cell that has pictures.
function walk(event, table) {
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  const here = event.target.closest("td");
  if (!step || !here) return;
  event.preventDefault();
  let row = here.parentElement.sectionRowIndex, column = here.cellIndex, next = null;
  const rows = table.tBodies[0].rows;
  while (!next) {
    row += step[0];
    column += step[1];
    if (!rows[row] || !rows[row].cells[column]) return;
    next = rows[row].cells[column].querySelector("button");
  }
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function open(key) {
  const [truth, answer] = key.split(",").map(Number), numbers = cells.get(key) || [];
  for (const button of matrix.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.key === key));
  }
  const place = document.getElementById("cell"), gallery = element("div", null, { class: "gallery" });
  const count = numbers.length === 1 ? "1 image" : numbers.length + " images";
  const title = truth === answer ? `${data.classes[truth]}, answered right: ${count}`
    : `${data.classes[truth]}, taken for ${data.classes[answer]}: ${count}`;
  const withPicture = numbers.filter((number) => data.images[number].src);
  const shown = (withPicture.length ? withPicture : numbers).slice(0, SHOWN);
  gallery.append(...shown.map(shot));
  place.replaceChildren(element("h3", title), gallery);
  if (shown.length < numbers.length) place.append(element("p", `and ${numbers.length - shown.length} more`, { class: "faint" }));
  place.scrollIntoView({ block: "nearest", behavior: "smooth" });
}
