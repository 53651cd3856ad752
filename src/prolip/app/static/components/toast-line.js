// One line at the foot of the page: what just happened. Screen readers read it.
import { h, style } from "../ui.js";

style(`
toast-line {
  position: fixed; inset: auto 0 16px 0; display: flex; justify-content: center; pointer-events: none;
  z-index: 20; padding: 0 12px;
}
toast-line div {
  background: var(--text); color: var(--back); padding: 10px 16px; border-radius: 10px;
  max-width: 680px; font-size: .92rem; box-shadow: 0 6px 24px #0005; overflow-wrap: anywhere;
}
toast-line div:empty { display: none; }
toast-line div.bad { background: var(--bad); color: var(--surface); }
`);

class ToastLine extends HTMLElement {
  connectedCallback() {
    const line = h("div", { role: "status", "aria-live": "polite" });
    this.append(line);
    let timer;
    document.addEventListener("toast", ({ detail: { message, kind } }) => {
      line.textContent = message;
      line.className = kind;
      clearTimeout(timer);
      timer = setTimeout(() => (line.textContent = ""), kind === "bad" ? 9000 : 5000);
    });
  }
}
customElements.define("toast-line", ToastLine);
