// Requests to this server, with a token where it needs one, which the reader types.
import { h } from "../lib/dom.js";

const KEY = "prolip-token";

// The response of a path as JSON; throws the server's message if there is one in place of it.
export async function call(path, options = {}) {
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
export const tokenHeader = () =>
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
