// What to do when the server is gone, when the browser has no token, or when the server cannot do its work.
import { store } from "../store.js";
import { h, style } from "../ui.js";

style(`
connection-banner { position: sticky; top: 0; z-index: 15; display: block; }
connection-banner [role="alert"] {
  background: var(--bad); color: var(--surface); padding: 10px 20px; font-weight: 600;
  text-align: center;
}
connection-banner dialog { padding: 18px 20px; width: min(560px, calc(100vw - 24px)); }
connection-banner dialog::backdrop { background: var(--back); }
connection-banner form { display: grid; gap: 10px; }
`);

const GONE =
  "The program has stopped. All changes are saved: start prolip app again and open the new address.";

class ConnectionBanner extends HTMLElement {
  connectedCallback() {
    const line = h("div", { role: "alert", hidden: true });
    this.dialog = this.login();
    this.append(line, this.dialog);
    store.addEventListener("update", () => {
      const locked = !store.online && store.stopped === "token";
      const message = locked ? "" : store.online ? store.trouble : GONE;
      line.hidden = !message;
      line.textContent = message;
      if (locked && !this.dialog.open) this.dialog.showModal();
      if (!locked) this.dialog.close();
    });
  }

  // The browser has no token, or one of an earlier run.
  login() {
    const link = h("input", { type: "text", id: "link", required: true, autocomplete: "off" });
    const enter = (event) => {
      event.preventDefault();
      location.hash = `#token=${link.value.trim().split("#token=").at(-1)}`;
      link.value = "";
    };
    return h(
      "dialog",
      { "aria-labelledby": "login-title", oncancel: (event) => event.preventDefault() },
      h(
        "form",
        { onsubmit: enter },
        h("h2", { id: "login-title" }, "This page needs its link"),
        h(
          "p",
          {},
          "prolip app is running, and this browser has no token for it. Open the address that it printed, " +
            "which ends in #token=…, or start prolip app once more: it opens the page. You can also paste " +
            "the address here.",
        ),
        h("label", { for: "link" }, "Address or token"),
        link,
        h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Open")),
      ),
    );
  }
}
customElements.define("connection-banner", ConnectionBanner);
