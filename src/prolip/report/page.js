// A report: everything shown comes from the page's own data.
import { calibrationChart, learningCurve } from "../static/charts.js";
import { h, percent, plural } from "../static/dom.js";
import { ConfusionMatrix, cellTitle } from "../static/matrix.js";

const data = JSON.parse(document.getElementById("data").textContent);
const CHARTS = { calibrationChart, learningCurve };
const SHOWN = 60; // images of a cell of the matrix

// Text that may break after the marks that names are made of, but not inside a number.
function breakable(element, text) {
  for (const part of text.split(/(?<=[_/-])|(?<=\.)(?!\d)/))
    element.append(part, document.createElement("wbr"));
  return element;
}

function lines({ lines, label, predicted, probability }) {
  if (lines) return lines;
  const found = percent(probability, probability > 0.99 || probability < 0.01 ? 1 : 0);
  if (label === predicted) return [[`${data.classes[label]}, ${found}`, "good"]];
  return [
    [`label: ${data.classes[label]}`, ""],
    [`predicted: ${data.classes[predicted]}, ${found}`, "bad"],
  ];
}

function caption(image) {
  return [
    ...lines(image).map(([text, tone]) => breakable(h("div", { class: `line ${tone}` }), text)),
    breakable(h("div", { class: "name", title: image.name }), image.name),
  ];
}

function figure(index) {
  const image = data.images[index];
  const alt = lines(image)
    .map(([text]) => text)
    .join(", ");
  const frame = image.src
    ? h(
        "button",
        { type: "button", class: "frame", title: "Enlarge", "data-image": index, onclick: enlarge },
        h("img", { src: image.src, alt }),
      )
    : h("div", { class: "frame" }, "no thumbnail");
  return h("figure", { class: "image" }, frame, caption(image));
}

// A click enlarges an image; the arrow keys go to its neighbours.
const viewer = h("dialog", {
  class: "viewer",
  "aria-label": "Image",
  onclick: () => viewer.close(),
  onkeydown: (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const frames = [...document.querySelectorAll("button.frame")];
    const next = step && frames[frames.indexOf(viewer.frame) + step];
    if (next) enlarge({ currentTarget: next });
  },
});
document.body.append(viewer);

function enlarge({ currentTarget: frame }) {
  const image = data.images[frame.dataset.image];
  viewer.frame = frame;
  viewer.replaceChildren(h("img", { src: image.src, alt: "" }), ...caption(image));
  if (!viewer.open) viewer.showModal();
}
viewer.addEventListener("close", () => viewer.frame.focus());

for (const place of document.querySelectorAll("[data-images]"))
  place.append(...place.dataset.images.split(",").map((index) => figure(Number(index))));

for (const place of document.querySelectorAll("[data-chart]"))
  place.append(CHARTS[place.dataset.chart](JSON.parse(place.dataset.values)));

for (const button of document.querySelectorAll("button.link")) {
  const text = button.textContent;
  button.textContent = "";
  breakable(button, text);
}

// Tables are sorted by the column that is clicked; numbers by value.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const compare = (a, b, column) => {
    const [first, second] = [a, b].map((row) => row.cells[column].textContent);
    const [x, y] = [parseFloat(first), parseFloat(second)];
    if (column === 0 || (isNaN(x) && isNaN(y))) return first.localeCompare(second);
    return (isNaN(x) ? -1 : x) - (isNaN(y) ? -1 : y);
  };
  heads.forEach((head, column) =>
    head.querySelector("button").addEventListener("click", () => {
      const order = head.getAttribute("aria-sort");
      const up = order === "descending" || (column === 0 && !order);
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(a, b, column));
      table.tBodies[0].append(...(up ? rows : rows.reverse()));
    }),
  );
}

const place = document.getElementById("matrix");
if (place) {
  const cells = new Map(); // "label,predicted": indices of images, the most probable first
  data.images.forEach(({ label, predicted }, index) => {
    if (label === undefined) return;
    const key = `${label},${predicted}`;
    cells.set(key, [...(cells.get(key) ?? []), index]);
  });
  for (const indices of cells.values())
    indices.sort((a, b) => data.images[b].probability - data.images[a].probability);
  const open = (label, predicted) => {
    const key = `${label},${predicted}`;
    const indices = cells.get(key) ?? [];
    const small = indices.filter((index) => data.images[index].src);
    const shown = (small.length ? small : indices).slice(0, SHOWN);
    const more = indices.length - shown.length;
    const title = `${cellTitle(data.classes, label, predicted)}: ${plural(indices.length, "image")}`;
    const target = document.getElementById("cell");
    target.replaceChildren(h("h3", {}, title), h("div", { class: "gallery" }, shown.map(figure)));
    if (more) target.append(h("p", { class: "muted" }, `and ${more} more`));
    matrix.select(key);
    target.scrollIntoView({ block: "nearest", behavior: "smooth" });
  };
  const matrix = new ConfusionMatrix(open);
  matrix.draw(data.classes, new Map([...cells].map(([key, indices]) => [key, indices.length])));
  place.append(matrix.element);
  for (const button of document.querySelectorAll("[data-cell]"))
    button.addEventListener("click", () => open(...button.dataset.cell.split(",").map(Number)));
}
