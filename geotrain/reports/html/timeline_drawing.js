// Draws what is visible: rows and spans, axis and grid, the small map of the whole step.

// ---- colours ----

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue("--" + name).trim();
  const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  palette = { kinds: about.kinds.map((kind) => makeColour(...parts(read(kind.colour)))) };
  for (const name of ["page", "panel", "line", "ink", "quiet", "row", "focus", "forward"]) palette[name] = read(name);
}

// For the pen as text, for single pixels as one number (red in the lowest byte), and the colour of a label on it.
function makeColour(red, green, blue) {
  const dark = 0.299 * red + 0.587 * green + 0.114 * blue < 115;
  return { text: `rgb(${red} ${green} ${blue})`, pixel: red | green << 8 | blue << 16, label: dark ? "#ffffff" : "#10151b" };
}

function fromHue(hue, saturation, lightness) {
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (lightness - saturation * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return makeColour(channel(0), channel(8), channel(4));
}

// Of no microbatch, and so always in the colour of its kind.
const alone = (kind) => ["all-reduce", "optimizer", "prefill"].includes(kind.colour);

function colourOf(kind, microbatch) {
  const plain = about.kinds[kind].colour;
  if (view.colour === "kind" || alone(about.kinds[kind])) return palette.kinds[kind];
  const key = microbatch * 16 + kind;
  let colour = microbatchColours.get(key);
  if (colour === undefined) {
    const lightness = { forward: 0.68, recompute: 0.78, backward: 0.58, "input-gradient": 0.58, "weight-gradient": 0.52 }[plain];
    colour = fromHue((microbatch * hueStep) % 360, 0.58, lightness || 0.64);
    microbatchColours.set(key, colour);
  }
  return colour;
}

// ---- drawing ----

function redraw() {
  if (!pending) pending = requestAnimationFrame(() => { pending = 0; draw(); });
}

function draw() {
  const pen = canvas.getContext("2d");
  pen.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  pen.fillStyle = palette.page;
  pen.fillRect(0, 0, size.width, size.height);
  pen.textBaseline = "middle";
  drawGrid(pen);
  const top = scroller.scrollTop, thin = { wide: Math.ceil(size.width - size.gutter), lines: [] };
  let drawn = 0, odd = false;
  for (const row of rows) {
    const y = AXIS + row.y - top;
    odd = !odd;
    if (y + row.height < AXIS || y > size.height) continue;
    if (row.header !== undefined) drawHeader(pen, row, y);
    else drawn += drawTrack(pen, row, y, odd, thin);
  }
  drawThin(pen, thin);
  drawMarks(pen);
  drawAxis(pen);
  drawMinimap();
  canvas.dataset.drawnSpans = String(drawn);
}

function drawHeader(pen, row, y) {
  pen.fillStyle = palette.panel;
  pen.fillRect(0, y, size.width, row.height);
  pen.fillStyle = palette.ink;
  pen.font = (row.height < 16 ? "600 11px" : "600 13px") + " system-ui, sans-serif";
  pen.fillText(row.header, 8, y + row.height / 2 + 0.5);
}

function drawTrack(pen, row, y, odd, thin) {
  const { gutter, width } = size;
  if (odd) {
    pen.globalAlpha = 0.5;
    pen.fillStyle = palette.row;
    pen.fillRect(0, y, width, row.height);
    pen.globalAlpha = 1;
  }
  if (row.height >= 10) {
    pen.fillStyle = palette.quiet;
    pen.font = row.height >= 16 ? LABEL_FONT : "10px system-ui, sans-serif";
    pen.fillText(fitText(pen, row.track[size.label], gutter - 14), 8, y + row.height / 2 + 0.5);
  }
  const pad = row.height >= 8 ? 1.5 : row.height >= 4 ? 0.5 : 0;
  return drawSpans(pen, row, y + pad, Math.max(1, row.height - 2 * pad), thin);
}

function drawSpans(pen, row, y, height, thin) {
  const tick = step / about.ticks, perTick = scale() * tick;
  const from = view.from / tick, to = view.to / tick, { gutter, width } = size;
  const { start, length, kind, microbatch } = spans;
  const blend = new Float64Array(about.kinds.length);
  let line = null, column = -1, last = 0, index = firstEndingAfter(row, from), drawn = 0;
  pen.font = height >= 14 ? LABEL_FONT : "10px system-ui, sans-serif";
  // Thin or low spans are gathered per pixel: its colour is that of the commonest, as strong as the pixel is full.
  const flush = () => {
    if (column < 0) return;
    let best = 0, sum = 0;
    for (let k = 0; k < blend.length; k++) {
      sum += blend[k];
      if (blend[k] > blend[best]) best = k;
    }
    if (line === null) {
      line = new Uint32Array(thin.wide);
      thin.lines.push({ line, y, height });
    }
    line[column - gutter] = colourOf(best, last).pixel | Math.round(255 * Math.min(1, Math.max(0.15, sum))) << 24;
    blend.fill(0);
    column = -1;
  };
  for (; index < row.last && start[index] < to; index++) {
    const x0 = Math.max(gutter, gutter + (start[index] - from) * perTick);
    const x1 = Math.min(width, gutter + (start[index] + length[index] - from) * perTick);
    const wide = x1 - x0;
    drawn++;
    if (wide < 4 || height < 11) {
      for (let here = Math.floor(x0); here < x1; here++) {
        if (here !== column) { flush(); column = here; }
        blend[kind[index]] += Math.min(x1, here + 1) - Math.max(x0, here);
        last = microbatch[index];
      }
      continue;
    }
    flush();
    pen.fillStyle = colourOf(kind[index], microbatch[index]).text;
    pen.fillRect(x0, y, wide - 1, height);
    if (wide > 16 && height >= 11) drawLabel(pen, index, x0, y, wide, height);
  }
  flush();
  return drawn;
}

// All the thin pixels of a frame as one picture, a line of it per row: far cheaper than a rectangle per pixel.
function drawThin(pen, { wide, lines }) {
  if (!lines.length) return;
  const sheet = document.createElement("canvas");
  sheet.width = wide;
  sheet.height = lines.length;
  const image = new ImageData(wide, lines.length), pixels = new Uint32Array(image.data.buffer);
  lines.forEach(({ line }, number) => pixels.set(line, number * wide));
  sheet.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  lines.forEach(({ y, height }, number) => pen.drawImage(sheet, 0, number, wide, 1, size.gutter, y, wide, height));
}

function drawLabel(pen, index, x, y, wide, height) {
  const kind = about.kinds[spans.kind[index]];
  const text = kind.letter ? kind.letter + spans.microbatch[index]
    : kind.colour === "activation" || kind.colour === "gradient" ? String(spans.microbatch[index]) : kind.name;
  const textWidth = pen.measureText(text).width;
  if (textWidth > wide - 4) return;
  pen.fillStyle = colourOf(spans.kind[index], spans.microbatch[index]).label;
  pen.fillText(text, x + (wide - textWidth) / 2, y + height / 2 + 0.5);
}

function fitText(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(text.slice(0, end) + "…").width > room) end--;
  return text.slice(0, end) + "…";
}

function ticks() {
  const gap = niceStep((view.to - view.from) / Math.max(1, (size.width - size.gutter) / 90));
  const marks = [];
  for (let number = Math.ceil(view.from / gap - 1e-9); number * gap <= view.to * (1 + 1e-12); number++) {
    const x = Math.round(size.gutter + (number * gap - view.from) * scale()) + 0.5;
    marks.push({ x, text: formatTime(number * gap, gap) });
  }
  return marks;
}

function drawGrid(pen) {
  pen.strokeStyle = palette.line;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const { x } of ticks()) {
    pen.moveTo(x, AXIS - 5);
    pen.lineTo(x, size.height);
  }
  pen.stroke();
}

// Where a step ends and the next one begins, if there are several.
function drawMarks(pen) {
  pen.strokeStyle = palette.ink;
  pen.lineWidth = 1.5;
  pen.setLineDash([5, 4]);
  pen.beginPath();
  for (const at of about.marks || []) {
    const x = Math.round(size.gutter + (at - view.from) * scale()) + 0.5;
    if (x < size.gutter) continue;
    pen.moveTo(x, AXIS);
    pen.lineTo(x, size.height);
  }
  pen.stroke();
  pen.setLineDash([]);
}

function drawAxis(pen) {
  const { gutter, width, height } = size;
  pen.fillStyle = palette.page;
  pen.fillRect(0, 0, width, AXIS);
  pen.fillStyle = palette.quiet;
  pen.strokeStyle = palette.line;
  pen.lineWidth = 1;
  pen.font = LABEL_FONT;
  for (const { x, text } of ticks()) {
    const half = pen.measureText(text).width / 2;
    if (x + half < width) pen.fillText(text, Math.max(2, x - half), 11);
  }
  pen.beginPath();
  pen.moveTo(0, AXIS - 0.5);
  pen.lineTo(width, AXIS - 0.5);
  pen.moveTo(gutter - 0.5, AXIS);
  pen.lineTo(gutter - 0.5, height);
  pen.stroke();
}

function drawMinimap() {
  const pen = minimap.getContext("2d"), width = size.mapWidth;
  pen.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  pen.fillStyle = palette.page;
  pen.fillRect(0, 0, width, MINIMAP);
  pen.fillStyle = palette.forward;
  const wide = width / busyOverTime.length;
  for (let i = 0; i < busyOverTime.length; i++) {
    const tall = busyOverTime[i] * (MINIMAP - 6);
    pen.fillRect(i * wide, MINIMAP - tall, wide + 0.5, tall);
  }
  const x0 = view.from / step * width, x1 = view.to / step * width;
  pen.globalAlpha = 0.65;
  pen.fillStyle = palette.page;
  pen.fillRect(0, 0, x0, MINIMAP);
  pen.fillRect(x1, 0, width - x1, MINIMAP);
  pen.globalAlpha = 1;
  pen.strokeStyle = palette.focus;
  pen.lineWidth = 2;
  pen.strokeRect(x0 + 1, 1, Math.max(3, x1 - x0 - 2), MINIMAP - 2);
  // On a ground of its own: bars behind the words would hide them.
  const words = "share of GPUs busy";
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.fillStyle = palette.page;
  pen.fillRect(4, 3, pen.measureText(words).width + 8, 15);
  pen.fillStyle = palette.quiet;
  pen.fillText(words, 8, 5);
}
