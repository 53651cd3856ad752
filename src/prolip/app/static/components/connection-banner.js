// What to do when the server is gone, or when it cannot do its work.
import { store } from "../store.js";
import { h, style } from "../ui.js";

style(`
connection-banner { position: sticky; top: 0; z-index: 15; display: block; }
connection-banner div {
  background: var(--bad); color: var(--surface); padding: 10px 20px; font-weight: 600;
  text-align: center;
}
`);

const GONE =
  "The program has stopped. All changes are saved: start prolip app again and open the new address.";
const OLD =
  "This page belongs to an earlier run. All changes are saved: open the address that prolip app printed.";

class ConnectionBanner extends HTMLElement {
  connectedCallback() {
    const line = h("div", { role: "alert", hidden: true });
    this.append(line);
    store.addEventListener("update", () => {
      const message = store.online ? store.trouble : store.stopped === "token" ? OLD : GONE;
      line.hidden = !message;
      line.textContent = message;
    });
  }
}
customElements.define("connection-banner", ConnectionBanner);
