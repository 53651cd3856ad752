// One line at the foot of the page: what just happened, and how to undo it. Screen readers read it.
import { actions, store } from "../store.js";
import { button, h, style } from "../ui.js";

style(`
toast-line {
  position: fixed; inset: auto 0 16px 0; display: flex; justify-content: center; pointer-events: none;
  z-index: 20; padding: 0 12px;
}
toast-line .line {
  background: var(--text); color: var(--back); padding: 10px 16px; border-radius: 10px; max-width: 680px;
  font-size: .92rem; box-shadow: 0 6px 24px #0005; overflow-wrap: anywhere; white-space: pre-line;
  display: flex; gap: 14px; align-items: center; pointer-events: auto;
}
toast-line .line:not(.shown) { display: none; }
toast-line .line.bad { background: var(--bad); color: var(--surface); }
`);

class ToastLine extends HTMLElement {
  connectedCallback() {
    const text = h("span", { role: "status", "aria-live": "polite" });
    const undo = button("Undo", () => {
      line.classList.remove("shown");
      actions.undo();
    });
    const line = h("div", { class: "line" }, text, undo);
    this.append(line);
    let [timer, revision] = [0, 0];
    document.addEventListener("toast", ({ detail: { message, kind, canUndo } }) => {
      text.textContent = message;
      line.className = `line shown ${kind}`;
      undo.hidden = !canUndo;
      revision = store.revision;
      clearTimeout(timer);
      const seconds = kind === "bad" || canUndo ? 9 : 5;
      timer = setTimeout(() => ((text.textContent = ""), line.classList.remove("shown")), 1000 * seconds);
    });
    // Undo takes back the last change: after another one this message's is no longer the last.
    store.addEventListener("update", () => {
      if (store.revision > revision + 1) undo.hidden = true;
    });
  }
}
customElements.define("toast-line", ToastLine);
