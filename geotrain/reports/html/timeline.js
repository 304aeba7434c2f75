"use strict";
// The timeline: rows of spans on a canvas. This file knows the data, the rows and the visible window;
// timeline_drawing.js draws them, timeline_input.js hears the hands and starts it all. The three are one script in the page.
window.addEventListener("error", (event) => {
  document.documentElement.setAttribute("data-js-error", event.message || "error");
});

const byId = (id) => document.getElementById(id);
const about = JSON.parse(byId("description").textContent);
const spans = readColumns(byId("columns").textContent, about.spans);
const step = about.step > 0 ? about.step : 1;
const canvas = byId("gantt"), scroller = byId("scroller"), spacer = byId("spacer"), minimap = byId("minimap");
const tip = byId("tip");
const AXIS = 26, HEADER = 22, MINIMAP = 44, LABEL_FONT = "12px system-ui, sans-serif";
const rows = makeRows();
const view = { from: 0, to: step, fitRows: false, colour: "kind" };
const busyOverTime = countBusy(600);
// Neighbouring microbatches get neighbouring hues, so that many of them still make a picture; 24 go round.
const hueStep = 360 / Math.min(24, Math.max(1, spans.microbatch.reduce((most, one) => Math.max(most, one), 0) + 1));
let palette = {}, size = {}, pending = 0;
const microbatchColours = new Map();

function readColumns(text, count) {
  const raw = atob(text.trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const buffer = bytes.buffer;
  return {
    start: new Uint32Array(buffer, 0, count), length: new Uint32Array(buffer, 4 * count, count),
    microbatch: new Uint32Array(buffer, 8 * count, count), other: new Uint16Array(buffer, 12 * count, count),
    kind: new Uint8Array(buffer, 14 * count, count),
  };
}

function makeRows() {
  const made = [];
  let first = 0, group = -1;
  for (const track of about.tracks) {
    if (track.group !== group) {
      group = track.group;
      made.push({ header: about.groups[group] });
    }
    made.push({ track, first, last: first + track.count });
    first += track.count;
  }
  return made;
}

function countBusy(buckets) {
  const busy = new Float64Array(buckets);
  let slots = 0;
  for (const row of rows) {
    if (row.header !== undefined || row.track.stage === undefined) continue;
    slots++;
    for (let i = row.first; i < row.last; i++) {
      if (about.kinds[spans.kind[i]].colour === "all-reduce") continue;
      let from = spans.start[i] / about.ticks * buckets;
      const to = from + spans.length[i] / about.ticks * buckets;
      for (let bucket = Math.floor(from); from < to && bucket < buckets; bucket++) {
        busy[bucket] += Math.min(to, bucket + 1) - from;
        from = bucket + 1;
      }
    }
  }
  return busy.map((sum) => sum / Math.max(1, slots));
}

// ---- sizes ----

function measure() {
  const width = Math.max(200, byId("chart").clientWidth);
  const numTracks = about.tracks.length, numHeaders = rows.length - numTracks;
  const most = Math.max(240, Math.floor(window.innerHeight * 0.7));
  let rowHeight = numTracks <= 30 ? 24 : numTracks <= 90 ? 18 : 14;
  let headerHeight = HEADER;
  if (view.fitRows) {
    rowHeight = Math.min(24, Math.max(1, (most - AXIS - numHeaders * 14) / numTracks));
    headerHeight = Math.min(HEADER, 14);
  }
  let y = 0;
  for (const row of rows) {
    row.y = y;
    row.height = row.header === undefined ? rowHeight : headerHeight;
    y += row.height;
  }
  const content = AXIS + Math.ceil(y);
  const height = Math.min(content, most);
  scroller.style.height = height + "px";
  spacer.style.height = content + "px";
  const gutter = labelWidth(width);
  Object.assign(size, { width: scroller.clientWidth || width, height, rowHeight, gutter, ratio: window.devicePixelRatio || 1 });
  fitCanvas(canvas, size.width, height);
  fitCanvas(minimap, width, MINIMAP);
  size.mapWidth = width;
}

function labelWidth(width) {
  const pen = canvas.getContext("2d"), label = width < 520 ? "short" : "name";
  pen.font = LABEL_FONT;
  const longest = Math.max(40, ...about.tracks.map((track) => pen.measureText(track[label]).width));
  size.label = label;
  return Math.ceil(Math.min(longest + 18, width * (width < 520 ? 0.27 : 0.24)));
}

function fitCanvas(target, width, height) {
  target.width = Math.round(width * size.ratio);
  target.height = Math.round(height * size.ratio);
  target.style.width = width + "px";
  target.style.height = height + "px";
}

// ---- time ----

const scale = () => (size.width - size.gutter) / (view.to - view.from);

function firstEndingAfter(row, tick) {
  let low = row.first, high = row.last;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans.start[middle] + spans.length[middle] > tick) high = middle;
    else low = middle + 1;
  }
  return low;
}

function niceStep(raw) {
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((gap) => gap >= raw * 0.999);
}

function formatTime(seconds, gap) {
  const [factor, unit] = step >= 1 && gap >= 1e-2 ? [1, "s"] : gap >= 1e-5 ? [1e3, "ms"] : gap >= 1e-8 ? [1e6, "µs"] : [1e9, "ns"];
  const digits = Math.max(0, -Math.floor(Math.log10(gap * factor) + 1e-9));
  return (seconds * factor).toFixed(Math.min(6, digits)) + " " + unit;
}

function showTime(seconds) {
  const [factor, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e3, "ms"] : seconds >= 1e-6 ? [1e6, "µs"] : [1e9, "ns"];
  return Number((seconds * factor).toPrecision(seconds >= 1 ? 6 : 4)) + " " + unit;
}

function show(from, to) {
  const wide = Math.min(step, Math.max(step * 1e-6, to - from));
  view.from = Math.min(Math.max(0, from), step - wide);
  view.to = view.from + wide;
  redraw();
}

function zoom(factor, x) {
  const at = view.from + ((x === undefined ? (size.width + size.gutter) / 2 : Math.max(size.gutter, x)) - size.gutter) / scale();
  show(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

const pan = (share) => show(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

function setFit(fitRows) {
  view.fitRows = fitRows;
  scroller.scrollTop = 0;
  measure();
  show(0, step);
}
