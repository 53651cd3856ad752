// Exchange the token in the address for a cookie, then load the components and the project.
import { connect, call, store } from "./store.js";
import "./components/toast-line.js";
import "./components/connection-banner.js";
import "./components/app-header.js";
import "./components/model-menu.js";
import "./components/model-change.js";
import "./components/image-dialog.js";
import "./components/class-card.js";
import "./components/class-grid.js";
import "./components/try-pane.js";
import "./components/label-queue.js";
import "./components/label-error-list.js";
import "./components/duplicate-list.js";
import "./components/confusion-matrix.js";
import "./components/learning-curve.js";
import "./components/export-menu.js";

const TOKEN = "#token="; // other hashes are anchors

async function logIn() {
  if (!location.hash.startsWith(TOKEN)) return;
  const token = location.hash.slice(TOKEN.length);
  history.replaceState(null, "", location.pathname);
  await call("api/session", { json: { token } }).catch(() => {});
  store.setOnline(store.online, ""); // a token that was missing is there now
}

// Sections with nothing to show are hidden.
store.addEventListener("update", () => {
  const trained = store.figures.ready;
  document.title = store.about.name ? `${store.about.name} – prolip` : "prolip";
  for (const id of ["confusion", "curve", "export"]) document.getElementById(id).hidden = !trained;
  document.getElementById("review").hidden = !document.querySelector("#review > :not(h2, [hidden])");
});
window.addEventListener("hashchange", logIn);
logIn().then(connect);
