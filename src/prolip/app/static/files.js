// Files that are dropped, pasted, chosen or taken by the camera, and their upload.
import { Refused, call, store } from "./store.js";
import { button, h, plural, toast } from "./ui.js";

const PARALLEL_UPLOADS = 4;
const MAX_RETRIES = 30; // while the server is busy

const looksLikeImage = (file) =>
  !file.name.startsWith(".") && (file.type === "" || file.type.startsWith("image/"));

// The name of the folder that a file was dropped or chosen with; undefined for a single file.
export const folderOf = (file) => file.folder ?? file.webkitRelativePath.split("/").at(-2);

// List dropped files, with those inside folders.
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  const found = [];
  const walk = async (entry, folder) => {
    if (entry.isFile) {
      const file = await new Promise((done, fail) => entry.file(done, fail)).catch(() => null);
      if (file && looksLikeImage(file)) found.push(Object.assign(file, { folder }));
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const part = await new Promise((done, fail) => reader.readEntries(done, fail)).catch(() => []);
      if (!part.length) return;
      for (const each of part) await walk(each, entry.name);
    }
  };
  for (const entry of entries) await walk(entry, undefined);
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

// Let files be dropped on an element.
export function dropTarget(element, ondrop) {
  let depth = 0;
  const over = (on) => element.classList.toggle("over", on);
  const has = (event) => event.dataTransfer?.types.includes("Files");
  element.addEventListener("dragenter", (event) => has(event) && (event.preventDefault(), over(++depth > 0)));
  element.addEventListener("dragover", (event) => has(event) && event.preventDefault());
  element.addEventListener("dragleave", (event) => has(event) && over(--depth > 0));
  element.addEventListener("drop", async (event) => {
    if (!has(event)) return;
    event.preventDefault();
    event.stopPropagation();
    depth = 0;
    over(false);
    ondrop(await dropped(event.dataTransfer));
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

async function send(file, label, group) {
  const query = new URLSearchParams({ name: file.name || "image", group });
  if (label !== null) query.set("label", label);
  for (let attempt = 0; ; attempt++) {
    try {
      return await call(`api/images?${query}`, { body: file });
    } catch (error) {
      if (error.status !== 503 || attempt >= MAX_RETRIES) throw error;
      await new Promise((done) => setTimeout(done, 300 + 700 * Math.random()));
    }
  }
}

// Upload files to a class (null: without a label), a few at a time. They are undone together.
export async function upload(files, label) {
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
        counts[(await send(file, label, group)).result] += 1;
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
  if (refused.length)
    parts.push(`${plural(refused.length, "file")} refused: ${refused[0][0]}, ${refused[0][1]}`);
  toast(parts.join("; "), refused.length ? "bad" : "");
}
