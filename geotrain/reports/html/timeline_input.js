// Tooltip, hands and keys, legend, and the start.

// ---- tooltip ----

function spanAt(x, y) {
  if (y < AXIS || x < size.gutter) return null;
  const inside = y - AXIS + scroller.scrollTop;
  const row = rows.find((one) => one.header === undefined && inside >= one.y && inside < one.y + one.height);
  if (!row) return null;
  const tick = (view.from + (x - size.gutter) / scale()) * about.ticks / step;
  const index = firstEndingAfter(row, tick);
  const slack = 2 / scale() * about.ticks / step;
  return index < row.last && spans.start[index] <= tick + slack ? { row, index } : null;
}

function describe({ row, index }) {
  const tick = step / about.ticks, kind = about.kinds[spans.kind[index]], track = row.track;
  const start = spans.start[index] * tick, lasts = spans.length[index] * tick, microbatch = spans.microbatch[index];
  const times = `start ${showTime(start)}, lasts ${showTime(lasts)}`;
  if (kind.letter) {
    const stage = track.stage + spans.other[index] * about.stages;
    return `${stage}${kind.letter}${microbatch}: ${kind.name}\nstage ${stage}, microbatch ${microbatch}, pipeline ${track.pipeline}\n`
      + `${times}\n${about.groups[track.group]}`;
  }
  if (kind.colour === "prefill") {
    return `prefill of request ${microbatch}\n${spans.other[index]} tokens\nstage ${track.stage}, pipeline ${track.pipeline}\n`
      + `${times}\n${about.groups[track.group]}`;
  }
  if (track.stage === undefined) {
    return `${kind.name} of microbatch ${microbatch}\npipeline ${spans.other[index]}${track.size ? ", " + track.size : ""}\n${times}\n${track.name}`;
  }
  return `${kind.name}\nstage ${track.stage}, pipeline ${track.pipeline}\n${times}\n${about.groups[track.group]}`;
}

function showTip(event) {
  const box = canvas.getBoundingClientRect();
  const found = spanAt(event.clientX - box.left, event.clientY - box.top);
  tip.hidden = !found;
  if (!found) return;
  tip.textContent = describe(found);
  const { offsetWidth, offsetHeight } = tip;
  const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - offsetWidth - 6);
  const below = event.clientY + 16;
  tip.style.left = Math.max(6, left) + "px";
  tip.style.top = (below + offsetHeight > window.innerHeight ? event.clientY - offsetHeight - 12 : below) + "px";
}

// ---- hands and keys ----

const pointers = new Map();
let moved = 0;
canvas.addEventListener("pointerdown", (event) => {
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  moved = pointers.size > 1 ? 99 : 0;
  canvas.setPointerCapture(event.pointerId);
  canvas.classList.add("dragging");
});
canvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) {
    if (event.pointerType === "mouse") showTip(event);
    return;
  }
  const dx = event.clientX - before.x, dy = event.clientY - before.y;
  moved += Math.abs(dx) + Math.abs(dy);
  if (pointers.size === 1) {
    if (moved > 4) tip.hidden = true;
    if (event.pointerType === "mouse") scroller.scrollTop -= dy;
    show(view.from - dx / scale(), view.to - dx / scale());
  } else if (pointers.size === 2) {
    const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
    const was = Math.abs(before.x - other.x), now = Math.abs(event.clientX - other.x);
    const middle = (event.clientX + other.x) / 2 - canvas.getBoundingClientRect().left;
    if (was > 8 && now > 8) zoom(was / now, middle);
    show(view.from - dx / 2 / scale(), view.to - dx / 2 / scale());
  }
  before.x = event.clientX;
  before.y = event.clientY;
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, (event) => {
    if (pointers.delete(event.pointerId) && name === "pointerup" && moved < 5) showTip(event);
    if (!pointers.size) canvas.classList.remove("dragging");
  });
}
canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") tip.hidden = true; });
canvas.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 16 : 1;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) * unit / 600);
  else zoom(Math.exp(event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0025)), event.clientX - canvas.getBoundingClientRect().left);
  tip.hidden = true;
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const keys = {
    "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
    ArrowUp: () => { scroller.scrollTop -= 3 * size.rowHeight; }, ArrowDown: () => { scroller.scrollTop += 3 * size.rowHeight; },
    0: () => setFit(false), Home: () => setFit(false), Escape: () => { tip.hidden = true; },
  };
  const act = keys[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});
const moveMap = (event) => {
  const wide = view.to - view.from, box = minimap.getBoundingClientRect();
  const at = (event.clientX - box.left) / box.width * step;
  show(at - wide / 2, at + wide / 2);
};
minimap.addEventListener("pointerdown", (event) => { minimap.setPointerCapture(event.pointerId); moveMap(event); });
minimap.addEventListener("pointermove", (event) => { if (event.buttons) moveMap(event); });
scroller.addEventListener("scroll", () => { tip.hidden = true; redraw(); });
const buttons = {
  "zoom-in": () => zoom(0.6), "zoom-out": () => zoom(1 / 0.6), earlier: () => pan(-0.3), later: () => pan(0.3),
  fit: () => setFit(true), reset: () => setFit(false),
};
for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);
for (const input of document.querySelectorAll("input[name=colour]")) {
  input.addEventListener("change", () => { view.colour = input.value; makeLegend(); redraw(); });
}

// ---- start ----

function makeLegend() {
  const list = byId("gantt-legend"), byKind = view.colour === "kind";
  list.replaceChildren();
  about.kinds.forEach((kind) => {
    if (!kind.used || !byKind && !alone(kind)) return;
    const item = document.createElement("li"), key = document.createElement("span");
    key.className = "key";
    key.style.cssText = `display:inline-block;background:var(--${kind.colour})`;
    item.append(key, (kind.letter ? kind.letter + " " : "") + kind.name);
    list.append(item);
  });
  const notes = byKind ? [] : ["one hue per microbatch: recompute lightest, backward darkest"];
  if (about.copies > 1) notes.push(`each pipeline shown stands for ${about.copies} equal ones`);
  for (const note of notes) {
    const item = document.createElement("li");
    item.textContent = note;
    list.append(item);
  }
}

function refresh() {
  readPalette();
  measure();
  draw();
}

byId("tools").hidden = byId("chart").hidden = false;
makeLegend();
refresh();
window.addEventListener("resize", refresh);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
// A canvas keeps its pixels in print: draw it in the light colours that paper has.
window.addEventListener("beforeprint", () => { document.documentElement.classList.add("light"); refresh(); });
window.addEventListener("afterprint", () => { document.documentElement.classList.remove("light"); refresh(); });
