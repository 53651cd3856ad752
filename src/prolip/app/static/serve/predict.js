// A form that sends one image to the server, and shows its prediction.
import { h, percent, plural } from "../lib/dom.js";

const KEY = "prolip-token";
const TOP = 5; // classes that are shown
const [models, file, drop, reject] = ["models", "file", "drop", "reject"].map((id) =>
  document.getElementById(id),
);
let served = [];
let image = null;

function describe() {
  const { classes, base_model, held_out_accuracy } = served[models.selectedIndex];
  const accuracy = held_out_accuracy === null ? "" : `, accuracy ${percent(held_out_accuracy, 1)} from held-out images`;
  const names = classes.slice(0, 20).join(", ") + (classes.length > 20 ? ", ..." : "");
  document.getElementById("about").textContent =
    `${plural(classes.length, "class", "classes")} (${names}) on ${base_model}${accuracy}`;
  const query = new URLSearchParams(options()).toString();
  const address = new URL(`predict${query && `?${query}`}`, location.href);
  document.getElementById("curl").textContent = `curl --data-binary @image.jpg${tokenHeader()} "${address}"`;
}

const options = () => ({
  ...(served.length > 1 && { model: models.value }),
  ...(reject.checked && { reject: true }),
});

async function predict() {
  describe();
  if (!image) return;
  const [prediction, time, top] = ["prediction", "time", "top"].map((id) => document.getElementById(id));
  const sent = image;
  prediction.textContent = "Waiting for the server ...";
  const started = performance.now();
  let found;
  try {
    const query = new URLSearchParams({ ...options(), top: TOP });
    found = await call(`predict?${query}`, { method: "POST", body: sent });
  } catch (error) {
    found = { error: error.message };
  }
  if (sent !== image) return; // another image was chosen meanwhile
  prediction.classList.toggle("bad", Boolean(found.error));
  prediction.textContent = found.error
    ? `No prediction: ${found.error}`
    : found.class === null
      ? "None of these classes"
      : `${found.class}, ${percent(found.probability)}${found.rejected ? " (none of these?)" : ""}`;
  top.replaceChildren(...(found.top ?? []).map(row));
  time.textContent = found.error ? "" : `${Math.round(performance.now() - started)} ms`;
}

function row({ class: name, probability }) {
  const bar = h("i");
  bar.style.width = `${100 * probability}%`;
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name),
    h("td", { class: "number" }, percent(probability, 1)),
    h("td", { class: "bar", "aria-hidden": "true" }, bar),
  );
}

function show(chosen) {
  if (!chosen) return;
  image = chosen;
  const preview = document.getElementById("preview");
  URL.revokeObjectURL(preview.src);
  preview.src = URL.createObjectURL(chosen);
  preview.hidden = false;
  predict();
}

file.addEventListener("change", () => show(file.files[0]));
for (const changed of [models, reject]) changed.addEventListener("change", predict);
document.addEventListener("paste", (event) => show(event.clipboardData.files[0]));
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.classList.add("over");
});
document.addEventListener("dragleave", (event) => event.relatedTarget ?? drop.classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  show(event.dataTransfer.files[0]);
});

// The response of a path as JSON, with the token where the server needs one, which the reader types; throws the server's message if there is one in place of it.
async function call(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) {
    await askForToken(token !== null);
    return call(path, options);
  }
  const found = await response.json();
  if (found.error) throw new Error(found.error);
  return found;
}

// Whether the server was given a token: examples then show where it goes.
const tokenHeader = () =>
  sessionStorage.getItem(KEY) ? ' -H "Authorization: Bearer $PROLIP_TOKEN"' : "";

function askForToken(wrong) {
  const input = h("input", { type: "password", required: true, pattern: "[\\w.~+\\/=\\-]+", autocomplete: "off" });
  const text = wrong ? "This is not the token of the server" : "The server needs its token";
  const form = h(
    "form",
    { method: "dialog" },
    h("label", {}, text, input),
    h("button", { class: "primary" }, "Continue"),
  );
  const dialog = h("dialog", { oncancel: (event) => event.preventDefault() }, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((done) =>
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, input.value);
      dialog.remove();
      done();
    }),
  );
}

served = await call("models");
models.append(...served.map(({ model }) => h("option", {}, model)));
document.getElementById("model").hidden = served.length < 2;
document.querySelector("h1").textContent = served.length > 1 ? "Try a model" : `Try ${served[0].model}`;
describe();
