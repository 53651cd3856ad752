// What to do when the server is gone. What was shown as kept is on disk.
import { store } from "../store.js";
import { h, style } from "../ui.js";

style(`
connection-banner { position: sticky; top: 0; z-index: 15; display: block; }
connection-banner div { background: var(--bad); color: var(--surface); padding: 10px 20px; font-weight: 600; text-align: center; }
`);

const GONE = "The program has stopped. What is shown as kept is on the disk: start prolip app again, and open the address that it prints.";
const OLD = "This page belongs to an earlier run of prolip app. Open the address that the program printed; everything is kept.";

class ConnectionBanner extends HTMLElement {
  connectedCallback() {
    const line = h("div", { role: "alert", hidden: true });
    this.append(line);
    store.addEventListener("update", () => {
      line.hidden = store.online;
      line.textContent = store.online ? "" : store.stopped === "token" ? OLD : GONE;
    });
  }
}
customElements.define("connection-banner", ConnectionBanner);
