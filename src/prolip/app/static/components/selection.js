// Selection of tiles as in a file manager: click, Ctrl, Shift, arrows. One tile has the focus. With `many`,
// as in a photo picker: a click selects or deselects a tile, and none need be selected.
export class Selection {
  constructor(grid, onchange) {
    Object.assign(this, { grid, onchange, ids: [], picked: new Set(), at: null, anchor: null, many: false });
    grid.addEventListener("keydown", (event) => this.key(event));
  }

  set(ids) {
    this.picked = new Set(ids);
    this.at = this.anchor = ids[0] ?? null;
  }

  selected() {
    return this.ids.filter((id) => this.picked.has(id));
  }

  current() {
    return this.at;
  }

  // Called when the tiles change: removed ones are deselected, and the next one is selected instead.
  // `focused` is whether a tile had the focus before they changed.
  update(ids, focused) {
    if (this.at !== null && !ids.includes(this.at)) {
      const old = this.ids.indexOf(this.at);
      const later = this.ids.slice(old).find((id) => ids.includes(id));
      this.at = later ?? ids.at(-1) ?? null;
      this.anchor = this.at;
      this.moved = true;
    }
    this.ids = ids;
    this.picked = new Set([...this.picked].filter((id) => ids.includes(id)));
    if (this.at === null && ids.length) this.at = this.anchor = ids[0];
    if (!this.picked.size && this.at !== null && !this.many) this.picked.add(this.at);
    this.draw(focused && this.moved);
    this.moved = false;
  }

  draw(focus) {
    for (const tile of this.grid.children) {
      const id = tile.dataset.key;
      tile.setAttribute("aria-selected", String(this.picked.has(id)));
      tile.tabIndex = id === this.at ? 0 : -1;
      if (focus && id === this.at) tile.focus({ preventScroll: true });
    }
  }

  click(id, event) {
    if (event.shiftKey) this.range(this.anchor ?? id, id);
    else if (event.ctrlKey || event.metaKey || this.many) {
      const others = this.many || this.picked.size > 1;
      this.picked.has(id) && others ? this.picked.delete(id) : this.picked.add(id);
      this.anchor = id;
    } else this.set([id]);
    this.at = id;
    this.onchange();
  }

  all() {
    this.picked = new Set(this.ids);
    this.onchange();
  }

  range(from, to) {
    const [a, b] = [this.ids.indexOf(from), this.ids.indexOf(to)].sort((x, y) => x - y);
    this.picked = new Set(this.ids.slice(a, b + 1));
  }

  key(event) {
    const columns = getComputedStyle(this.grid).gridTemplateColumns.split(" ").length;
    const step = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: columns,
      ArrowUp: -columns,
      Home: -Infinity,
      End: Infinity,
    }[event.key];
    if (event.key === "a" && (event.ctrlKey || event.metaKey)) this.picked = new Set(this.ids);
    else if (step === undefined) return;
    else {
      const place = this.ids.indexOf(this.at) + step;
      const next = this.ids[Math.min(Math.max(place, 0), this.ids.length - 1)];
      if (event.shiftKey) this.range(this.anchor ?? this.at, next);
      else if (!this.many) this.set([next]);
      this.at = next;
      this.grid.querySelector(`[data-key="${next}"]`)?.focus();
    }
    event.preventDefault();
    this.onchange();
  }
}
