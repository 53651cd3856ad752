// Files that are dropped, pasted, chosen or taken by the camera, and their upload.
import { Refused, call, store } from "./store.js";
import { DRAGGED, button, h, plural, toast } from "./ui.js";

const PARALLEL_UPLOADS = 4;
const MAX_BYTES = 32 * 2 ** 20;
const REASONS = 3; // refused files that a message names

const looksLikeImage = (file) =>
  !file.name.startsWith(".") && (file.type === "" || file.type.startsWith("image/"));

// The names of the folders that a file was dropped or chosen with, outermost first.
const foldersOf = (file) => file.folders ?? file.webkitRelativePath.split("/").slice(0, -1);
export const folderOf = (file) => foldersOf(file).at(-1); // undefined for a single file

// Of folders that stand in train/ and in test/, the files for testing; none if there is no train/.
export function testFiles(files) {
  const inside = (file, name) =>
    foldersOf(file)
      .slice(0, -1)
      .some((folder) => name.test(folder));
  if (!files.some((file) => inside(file, /^train(ing)?$/i))) return new Set();
  return new Set(files.filter((file) => inside(file, /^(test(ing)?|val(id(ation)?)?)$/i)));
}

// List dropped files, with those inside folders.
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  const found = [];
  const walk = async (entry, folders) => {
    if (entry.isFile) {
      const file = await new Promise((done, fail) => entry.file(done, fail)).catch(() => null);
      if (file && looksLikeImage(file)) found.push(Object.assign(file, { folders }));
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const part = await new Promise((done, fail) => reader.readEntries(done, fail)).catch(() => []);
      if (!part.length) return;
      for (const each of part) await walk(each, [...folders, entry.name]);
    }
  };
  for (const entry of entries) await walk(entry, []);
  return found;
}

// A button that opens a chooser of files, or of a folder.
export function chooser(label, onfiles, { folder = false } = {}) {
  const input = h("input", { type: "file", multiple: true, hidden: true, accept: folder ? null : "image/*" });
  input.webkitdirectory = folder;
  input.addEventListener("change", () => {
    onfiles(folder ? [...input.files].filter(looksLikeImage) : [...input.files]);
    input.value = "";
  });
  return [button(label, () => input.click()), input];
}

// Let files be dropped on an element; and images of the project, by their ids, if `onimages` is given.
export function dropTarget(element, ondrop, onimages) {
  let depth = 0;
  const over = (on) => element.classList.toggle("over", on);
  const moves = (event) => onimages && event.dataTransfer?.types.includes(DRAGGED);
  const has = (event) => event.dataTransfer?.types.includes("Files") || moves(event);
  element.addEventListener("dragenter", (event) => has(event) && (event.preventDefault(), over(++depth > 0)));
  element.addEventListener("dragover", (event) => has(event) && event.preventDefault());
  element.addEventListener("dragleave", (event) => has(event) && over(--depth > 0));
  element.addEventListener("drop", async (event) => {
    if (!has(event)) return;
    event.preventDefault();
    event.stopPropagation();
    depth = 0;
    over(false);
    if (moves(event)) onimages(JSON.parse(event.dataTransfer.getData(DRAGGED)));
    else ondrop(await dropped(event.dataTransfer));
  });
  element.dataset.takesFiles = "";
  element.takeFiles = ondrop;
}

// Files are pasted into the focused part of the page, by default into the try-it pane.
document.addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])].filter(looksLikeImage);
  if (!files.length) return;
  event.preventDefault();
  const target =
    document.activeElement?.closest("[data-takes-files]") ??
    document.querySelector("try-pane [data-takes-files]");
  target?.takeFiles(files);
});
// A file that is dropped elsewhere must not replace the page.
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  if (event.dataTransfer?.types.includes("Files"))
    toast("Drop images on a class, or on Label next if they have none yet.", "bad");
});

async function send(file, label, group, test) {
  if (file.size > MAX_BYTES) throw new Refused("it is larger than 32 MB");
  const query = new URLSearchParams({ name: file.name || "image", group, test });
  if (label !== null) query.set("label", label);
  return call(`api/images?${query}`, { body: file });
}

// Upload files to a class (null: without a label), a few at a time. They are undone together. Those of `tests`
// become test images.
export async function upload(files, label, tests = new Set()) {
  if (!files.length) return toast("There is no image among these files.", "bad");
  const group = crypto.randomUUID?.() ?? String(Math.random());
  const counts = { added: 0, moved: 0, known: 0 };
  const refused = [];
  const queue = [...files];
  store.pending += queue.length;
  store.changed();
  const worker = async () => {
    while (queue.length) {
      const file = queue.shift();
      try {
        counts[(await send(file, label, group, tests.has(file))).result] += 1;
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        refused.push([file.name, error.message]);
      } finally {
        store.pending -= 1;
        store.changed();
      }
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_UPLOADS }, worker));
  const where = label === null ? "" : ` in ${store.name(label)}`;
  const parts = [];
  if (counts.added) parts.push(`${plural(counts.added, "image")} added${where}`);
  if (counts.moved)
    parts.push(`${plural(counts.moved, "image")} moved${where ? ` to ${store.name(label)}` : ""}`);
  if (counts.known) parts.push(`${counts.known} there already`);
  const kept = files.filter((file) => tests.has(file)).length;
  if (kept) parts.push(`${kept} of them only for testing`);
  if (refused.length) {
    const reasons = refused.slice(0, REASONS).map(([name, reason]) => `${name}: ${reason}`);
    if (refused.length > REASONS) reasons.push(`and ${refused.length - REASONS} more`);
    parts.push(`${plural(refused.length, "file")} refused:\n${reasons.join("\n")}`);
  }
  toast(parts.join("; "), refused.length ? "bad" : "");
}
