// The state of the project, synchronized with the server, and the calls that change it.

class Store extends EventTarget {
  ready = false;
  online = true;
  stopped = ""; // why there is no connection, if that is known
  revision = -1;
  classes = new Map(); // id: {name, text}
  images = new Map(); // id: {name, label, checked, test, machine}
  figures = { ready: false, classes: {} };
  flips = new Map(); // since the fit before: by image that both predicted, whether it is [was, is] correct
  slow = {};
  bad = {};
  waiting = 0; // images that are not encoded yet
  undo = "";
  trouble = ""; // what the server cannot do, as a message
  about = { name: "", model: "", folder: "", templates: ["{}"] };
  change = null; // to another base model
  pending = 0; // images being uploaded

  // Redraw once a frame, however many events arrive.
  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    const draw = () => {
      this.scheduled = false;
      this.dispatchEvent(new Event("update"));
    };
    document.hidden ? setTimeout(draw, 50) : requestAnimationFrame(draw);
  }

  classIds() {
    return [...this.classes.keys()].sort((a, b) => a - b);
  }

  name(id) {
    return this.classes.get(id)?.name ?? "?";
  }

  get unlabelled() {
    return this.members(null).length > 0;
  }

  // The images of a class, or those without one; all are grouped once for each revision.
  members(label) {
    if (this.grouped?.revision !== this.revision) {
      const groups = new Map();
      for (const [id, row] of this.images) {
        if (!groups.has(row.label)) groups.set(row.label, []);
        groups.get(row.label).push(id);
      }
      this.grouped = { revision: this.revision, groups };
    }
    return this.grouped.groups.get(label) ?? [];
  }

  // The class that an image probably shows, if its label looks wrong and was not confirmed since.
  suggestion(id) {
    const [row, found] = [this.images.get(id), this.figures.label_errors?.[id]];
    return row && row.label !== null && !row.checked && found !== row.label ? found : undefined;
  }

  labelErrors() {
    return Object.keys(this.figures.label_errors ?? {}).filter((id) => this.suggestion(id));
  }

  // The response may be older than events that came meanwhile.
  async load() {
    const [turn, { figures, slow }] = [(this.turn = (this.turn ?? 0) + 1), this];
    const all = await call("api/project");
    if (turn !== this.turn) return;
    if (this.ready && all.revision < this.revision) return this.load();
    if (this.figures !== figures) all.figures = this.figures;
    if (this.slow !== slow) all.slow = this.slow;
    this.classes = new Map(Object.entries(all.classes));
    this.images = new Map(Object.entries(all.images));
    Object.assign(this, {
      revision: all.revision,
      figures: all.figures,
      slow: all.slow,
      bad: all.bad,
      undo: all.undo,
      trouble: all.trouble,
      change: all.change,
      waiting: all.waiting,
    });
    this.figures.classes ??= {};
    this.about = {
      name: all.name,
      model: all.model,
      folder: all.folder,
      templates: all.templates,
      version: all.version,
    };
    this.ready = true;
    this.changed();
  }

  receive(event) {
    if (event.type === "change") this.apply(event);
    else if (event.type === "figures") this.compare(event);
    else if (event.type === "slow") this.slow = event;
    else if (event.type === "progress")
      Object.assign(this, { waiting: event.waiting, bad: { ...this.bad, ...event.bad } });
    else if (event.type === "trouble") this.trouble = event.message;
    else if (event.type === "model") {
      const other = event.model !== this.about.model;
      this.change = event.change;
      if (other) return void this.load();
    }
    this.changed();
  }

  // Before and after are compared on the same images, by the labels that they have now.
  compare(figures) {
    const before = this.figures.held_out ?? {};
    this.flips = new Map();
    for (const [id, [now]] of Object.entries(figures.held_out ?? {})) {
      const label = this.images.get(id)?.label;
      if (id in before) this.flips.set(id, [before[id][0] === label, now === label]);
    }
    this.figures = figures;
  }

  // What the model predicts for an image with another label, as held-out or test image.
  mistake(id) {
    const { held_out, test } = this.figures;
    const predicted = (held_out?.[id] ?? test?.predictions[id])?.[0];
    return predicted !== this.images.get(id)?.label ? predicted : undefined;
  }

  byMachine() {
    return [...this.images].filter(([, row]) => row.machine).map(([id]) => id);
  }

  apply(change) {
    if (change.revision <= this.revision) return;
    if (change.revision > this.revision + 1) return void this.load();
    for (const [table, rows] of [
      [this.classes, change.classes],
      [this.images, change.images],
    ])
      for (const [id, row] of Object.entries(rows)) row === null ? table.delete(id) : table.set(id, row);
    this.revision = change.revision;
    this.undo = change.undo;
  }

  setOnline(online, stopped = "") {
    if (this.online === online && this.stopped === stopped) return;
    Object.assign(this, { online, stopped });
    this.changed();
  }
}

export const store = new Store();

export class Refused extends Error {}

// Call the server; an error response is thrown with the server's message.
export async function call(path, { method, json, body, file } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method: method ?? (json || body ? "POST" : "GET"),
      body: json ? JSON.stringify(json) : body,
    });
  } catch {
    store.setOnline(false);
    throw new Refused("There is no connection to the server.");
  }
  if (response.status === 401) {
    store.setOnline(false, "token");
    throw new Refused("The browser has no token of this run.");
  }
  if (response.ok && file) return response;
  const found = await response.json().catch(() => ({}));
  if (!response.ok)
    throw Object.assign(new Refused(found.error ?? `The server returned ${response.status}.`), {
      status: response.status,
    });
  return found;
}

// Save a download under the name that the server gives it.
export async function save(path) {
  const response = await call(path, { file: true });
  const [, encoded, plain] = /filename\*?=(?:utf-8''([^;]*)|"([^"]*)")/.exec(
    response.headers.get("content-disposition"),
  );
  const url = URL.createObjectURL(await response.blob());
  Object.assign(document.createElement("a"), {
    href: url,
    download: plain ?? decodeURIComponent(encoded),
  }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

// Make a change; an error is shown, and null returned.
export async function change(path, json = {}, method = "POST") {
  try {
    return await call(path, { method, json });
  } catch (error) {
    document.dispatchEvent(new CustomEvent("toast", { detail: { message: error.message, kind: "bad" } }));
    if (error.status === 409) store.load();
    return null;
  }
}

// Edits are sent one after the other, in the order in which they were made.
let edited = Promise.resolve();
const edit = (name, fields) => (edited = edited.then(() => change(`api/edit/${name}`, fields)));

export const actions = {
  addClass: (name, images = []) => edit("add_class", { name, images }),
  editClass: (key, fields) => edit("edit_class", { key, ...fields }),
  removeClass: (key) => edit("remove_class", { key }),
  label: (images, label, group = "") => edit("label_images", { images, label, group }),
  acceptPredictions: (images, label, group) => edit("accept_predictions", { images, label, group }),
  remove: (images) => edit("remove_images", { images }),
  undo: () => change("api/undo"),
  addSamples: () => change("api/samples"),
  chooseModel: (name) => change("api/model", { name }),
  cancelModel: () => change("api/model", {}, "DELETE"),
};

// Listen to events. Browsers reconnect by themselves after a network failure, but not after a refusal.
export function connect() {
  const stream = new EventSource("api/events");
  stream.onopen = () =>
    store.load().then(
      () => store.setOnline(true),
      () => {},
    );
  stream.onmessage = (message) => store.receive(JSON.parse(message.data));
  stream.onerror = async () => {
    if (stream.readyState !== EventSource.CLOSED) return store.setOnline(false, store.stopped);
    await call("api/models").catch(() => {}); // a refusal says whether the token is missing
    setTimeout(connect, 2000);
  };
}

export const imageUrl = (id) => `api/images/${id}`;
export const largeUrl = (id) => `api/images/${id}/large`;
