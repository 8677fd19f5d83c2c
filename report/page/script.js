'use strict';
// Builds the page from the data in #data. Text from a run is only ever inserted as text nodes.
const data = JSON.parse(document.getElementById('data').textContent);
const runs = data.runs, many = runs.length > 1;
const view = { axis: 'steps', range: null, smoothing: 0, charts: [] };
const color = (i) => `var(--c${i % 8})`;

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}
function shape(tag, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Formats numbers.
function short(x) {
  if (x === null || x === undefined) return '–';
  const size = Math.abs(x);
  if (size === 0) return '0';
  if (size < 1e-3 || size >= 1e9) return x.toExponential(2).replace(/\.?0+e/, 'e').replace('e+', 'e');
  if (size >= 1000) return Math.round(x).toLocaleString('en-US');
  return String(Number(x.toPrecision(4)));
}
function counted(x) {
  if (x === null || x === undefined) return '–';
  if (x >= 1e9) return Number((x / 1e9).toPrecision(3)) + ' G';
  if (x >= 1e6) return Number((x / 1e6).toPrecision(3)) + ' M';
  return short(x);
}
function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  const s = Math.round(seconds), h = Math.floor(s / 3600), m = Math.floor(s % 3600 / 60);
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${s % 60} s` : `${s} s`;
}
function mib(x) {
  if (x === null || x === undefined) return '–';
  const [size, unit] = x >= 10240 ? [x / 1024, 'GiB'] : x >= 1 ? [x, 'MiB'] : [x * 1024, 'KiB'];
  return `${size >= 100 ? Math.round(size).toLocaleString('en-US') : Number(size.toPrecision(3))} ${unit}`;
}
const moment = (seconds) => seconds ? new Date(seconds * 1000).toISOString().slice(0, 16).replace('T', ' ') + ' UTC' : '–';
const stepOf = (f) => f.max_steps ? `${short(f.step)} of ${short(f.max_steps)}` : short(f.step);
const axes = {
  steps: { name: 'step', tick: counted, value: (x) => `step ${short(x)}` },
  seconds: { name: 'time since the first row', tick: duration, value: duration },
  tokens: { name: 'tokens', tick: counted, value: (x) => `${counted(x)} tokens` },
};

// --- Curves ---

const specs = [
  { title: 'Loss', wide: true, log: true, curves: [['loss', 'training', { smooth: true }], ['eval_loss', 'evaluation',
    { dash: '6 4', dots: true }]] },
  { title: 'Learning rate', log: true, curves: [['learning_rate', 'learning rate', {}]] },
  { title: 'Gradient norm', log: true, curves: [['grad_norm', 'gradient norm', { smooth: true }]] },
  { title: 'Throughput', unit: 'tokens/s', zero: true, curves: [['tokens_per_second', 'tokens/s', { smooth: true }]] },
  { title: 'Memory', unit: 'MiB', zero: true, plan: true,
    curves: [['device_mb', 'used by the run', {}], ['rss_mb', 'whole process', { dash: '2 3' }]] },
  { title: 'Share of time spent waiting for data', zero: true, curves: [['data_wait', 'share', {}]] },
  { title: 'Router loss', log: true, curves: [['aux_loss', 'routers', { smooth: true }]] },
  { title: 'Loss scale', log: true, curves: [['loss_scale', 'scale', {}]] },
];

// Exponential moving average, corrected for the bias toward the first value.
function smoothed(values, weight) {
  let sum = 0, weights = 0;
  return values.map((v) => {
    sum = sum * weight + v * (1 - weight);
    weights = weights * weight + (1 - weight);
    return sum / weights;
  });
}
function ticksOf(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= raw);
  const ticks = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) ticks.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  return ticks;
}
function logTicks(low, high) {
  const decades = Math.log10(high / low), ticks = [];
  const factors = decades > 4 ? [1] : decades > 1.5 ? [1, 3] : [1, 1.5, 2, 3, 4, 5, 7];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p)
    for (const f of factors) {
      const t = f * 10 ** p;
      if (t >= low * 0.999 && t <= high * 1.001) ticks.push(t);
    }
  const every = Math.ceil(ticks.length / 7);
  return ticks.length > 1 ? ticks.filter((_, i) => i % every === 0) : [low, high];
}

class Chart {
  constructor(spec) {
    this.spec = spec;
    this.log = false;
    this.lines = [];
    runs.forEach((run, r) => spec.curves.forEach(([key, label, style], c) => {
      const curve = run.curves[key];
      if (!curve || !curve.values.length) return;
      this.lines.push({ curve, style, shown: true, label: many ? `${run.name}: ${label}` : label, color: color(many ? r : c) });
      if (style.dots && !many) this.lines[this.lines.length - 1].color = color(1);
    }));
    if (spec.plan) runs.forEach((run, r) => {
      const total = run.figures.planned_memory_mb;
      if (total && this.lines.length) this.lines.push({ level: total, style: { dash: '8 3' }, shown: true,
        label: (many ? `${run.name}: ` : '') + 'plan', color: color(many ? r : 2) });
    });
  }
  make() {
    const logButton = element('button', { class: 'small', type: 'button', 'aria-pressed': 'false', onclick: () => {
      this.log = !this.log;
      logButton.setAttribute('aria-pressed', String(this.log));
      this.draw();
    } }, 'log');
    const keys = this.lines.map((line) => {
      const mark = element('i', { class: line.style.dash ? 'dash' : '', style: `color:${line.color}` });
      const key = element('button', { class: 'key', type: 'button', title: 'Show or hide', onclick: () => {
        line.shown = !line.shown;
        key.classList.toggle('off', !line.shown);
        this.draw();
      } }, mark, line.label);
      return key;
    });
    this.svg = shape('svg', { height: this.spec.wide ? 260 : 190, role: 'img', 'aria-label': this.spec.title });
    this.tip = element('div', { class: 'tip' });
    const title = this.spec.title + (this.spec.unit ? `, ${this.spec.unit}` : '');
    this.host = element('div', { class: 'card chart', style: this.spec.wide ? 'grid-column:1/-1' : null },
      element('div', { class: 'top' }, element('h3', {}, title), element('div', { class: 'keys' }, keys),
        this.spec.log ? logButton : null), this.svg, this.tip);
    this.listen();
    return this.host;
  }
  listen() {
    let from = null;
    const at = (event) => event.clientX - this.svg.getBoundingClientRect().left;
    this.svg.addEventListener('pointerdown', (e) => { from = at(e); this.svg.setPointerCapture(e.pointerId); });
    this.svg.addEventListener('pointermove', (e) => {
      this.hover(at(e));
      if (from === null) return;
      const to = at(e), box = this.box;
      this.mark.setAttribute('x', Math.max(Math.min(from, to), box.left));
      this.mark.setAttribute('width', Math.min(Math.max(from, to), box.right) - Math.max(Math.min(from, to), box.left));
    });
    this.svg.addEventListener('pointerup', (e) => {
      const start = from;
      from = null;
      if (start === null || Math.abs(at(e) - start) < 6) return this.mark && this.mark.setAttribute('width', 0);
      zoom([this.unscale(Math.min(start, at(e))), this.unscale(Math.max(start, at(e)))]);
    });
    this.svg.addEventListener('pointercancel', () => { from = null; });
    this.svg.addEventListener('pointerleave', () => this.hover(null));
    this.svg.addEventListener('dblclick', () => zoom(null));
  }
  draw() {
    const width = Math.max(this.svg.clientWidth, 200), height = Number(this.svg.getAttribute('height'));
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);  // in print, where the page is narrower, the whole chart shrinks
    const box = this.box = { left: 54, right: width - 10, top: 8, bottom: height - 24 };
    this.svg.replaceChildren();
    const shown = this.lines.filter((line) => line.shown);
    const curves = shown.filter((line) => line.curve);
    let [x0, x1] = view.range || [Infinity, -Infinity];
    if (!view.range) for (const line of this.lines.filter((l) => l.curve)) for (const x of line.curve[view.axis]) {
      x0 = Math.min(x0, x);
      x1 = Math.max(x1, x);
    }
    if (!(x1 > x0)) { x0 -= 1; x1 = x0 + 2; }
    let y0 = Infinity, y1 = -Infinity;
    const take = (y) => { if (!this.log || y > 0) { y0 = Math.min(y0, y); y1 = Math.max(y1, y); } };
    for (const line of curves) {
      line.smooth = view.smoothing > 0 && line.style.smooth && line.curve.values.length > 2
        ? smoothed(line.curve.values, view.smoothing) : null;
      const drawn = line.smooth || line.curve.values;
      line.curve[view.axis].forEach((x, i) => { if (x >= x0 && x <= x1) take(drawn[i]); });
    }
    for (const line of shown) if (line.level) take(line.level);
    if (this.spec.zero && !this.log) y0 = Math.min(y0, 0);
    if (!(y1 >= y0)) { y0 = this.log ? 1 : 0; y1 = this.log ? 10 : 1; }
    if (y1 === y0) { y1 = y0 === 0 ? 1 : y0 + Math.abs(y0) * 0.1; y0 = this.spec.zero || this.log ? y0 : y0 - Math.abs(y0) * 0.1; }
    if (!this.log) { const pad = (y1 - y0) * 0.05; y1 += pad; if (!this.spec.zero) y0 -= y0 >= 0 && y0 < pad ? y0 : pad; }
    const scale = this.scale = (x) => box.left + (x - x0) / (x1 - x0) * (box.right - box.left);
    this.unscale = (px) => x0 + (Math.min(Math.max(px, box.left), box.right) - box.left) / (box.right - box.left) * (x1 - x0);
    const flat = (y) => this.log ? Math.log(Math.max(y, y0)) : y;
    this.up = (y) => box.bottom - (flat(y) - flat(y0)) / (flat(y1) - flat(y0) || 1) * (box.bottom - box.top);
    for (const y of this.log ? logTicks(y0, y1) : ticksOf(y0, y1, height > 200 ? 6 : 4)) {
      this.svg.append(shape('line', { x1: box.left, x2: box.right, y1: this.up(y), y2: this.up(y), stroke: 'var(--grid)' }));
      this.svg.append(shape('text', { x: box.left - 6, y: this.up(y) + 4, 'text-anchor': 'end' }, short(Number(y.toPrecision(6)))));
    }
    const ticks = ticksOf(x0, x1, Math.max(2, Math.floor(width / 110))).filter((t) => view.axis !== 'steps' || Number.isInteger(t));
    for (const x of ticks)
      this.svg.append(shape('text', { x: scale(x), y: box.bottom + 17, 'text-anchor': scale(x) > box.right - 24 ? 'end' : 'middle' },
        axes[view.axis].tick(x)));
    this.svg.append(shape('line', { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, stroke: 'var(--line)' }));
    const id = `clip${view.charts.indexOf(this)}`, clip = shape('clipPath', { id });
    clip.append(shape('rect', { x: box.left - 4, y: 0, width: box.right - box.left + 8, height: box.bottom + 1 }));
    const group = shape('g', { 'clip-path': `url(#${id})` });
    this.svg.append(clip, group);
    for (const line of shown) this.drawLine(group, line);
    this.mark = shape('rect', { y: box.top, height: box.bottom - box.top, width: 0, fill: 'var(--link)', opacity: 0.15 });
    this.cross = shape('line', { y1: box.top, y2: box.bottom, stroke: 'var(--soft)', 'stroke-dasharray': '2 3', visibility: 'hidden' });
    this.svg.append(this.mark, this.cross);
  }
  drawLine(group, line) {
    const path = (ys, more) => {
      let d = '';
      line.curve[view.axis].forEach((x, i) => {
        if (!this.log || ys[i] > 0) d += `${d ? 'L' : 'M'}${this.scale(x).toFixed(1)} ${this.up(ys[i]).toFixed(1)}`;
      });
      const style = { d, fill: 'none', stroke: line.color, 'stroke-width': 1.7, 'stroke-linejoin': 'round' };
      group.append(shape('path', { ...style, ...more }));
    };
    const dash = line.style.dash ? { 'stroke-dasharray': line.style.dash } : {};
    if (line.level) {
      group.append(shape('line', { x1: this.box.left, x2: this.box.right, y1: this.up(line.level), y2: this.up(line.level),
        stroke: line.color, 'stroke-width': 1.5, ...dash }));
      return;
    }
    if (line.smooth) path(line.curve.values, { opacity: 0.25, 'stroke-width': 1 });
    path(line.smooth || line.curve.values, dash);
    const n = line.curve.values.length;
    if (n === 1 || (line.style.dots && n <= 60)) line.curve[view.axis].forEach((x, i) => group.append(
      shape('circle', { cx: this.scale(x), cy: this.up(line.curve.values[i]), r: 2.8, fill: line.color })));
  }
  hover(px) {
    const box = this.box, lines = this.lines.filter((l) => l.shown && l.curve);
    const inside = px !== null && box && px >= box.left - 4 && px <= box.right + 4 && lines.length;
    this.tip.style.display = inside ? 'block' : 'none';
    if (this.cross) this.cross.setAttribute('visibility', inside ? 'visible' : 'hidden');
    if (!inside) return;
    const x = this.unscale(px);
    const nearest = (xs) => {
      let low = 0, high = xs.length - 1;
      while (low < high) { const mid = (low + high) >> 1; if (xs[mid] < x) low = mid + 1; else high = mid; }
      return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
    };
    const found = lines.map((line) => ({ line, i: nearest(line.curve[view.axis]) }));
    const distance = ({ line, i }) => Math.abs(line.curve[view.axis][i] - x);
    const first = found.reduce((a, b) => distance(b) < distance(a) ? b : a);
    const at = first.line.curve[view.axis][first.i], where = this.scale(at);
    this.cross.setAttribute('x1', where);
    this.cross.setAttribute('x2', where);
    this.tip.replaceChildren(element('div', { class: 'soft' }, axes[view.axis].value(at)), ...found.map(({ line, i }) =>
      element('div', {}, element('span', { class: 'swatch', style: `background:${line.color}` }),
        `${line.label} ${short(line.curve.values[i])}` +
        (line.curve[view.axis][i] === at ? '' : ` (${axes[view.axis].value(line.curve[view.axis][i])})`))));
    const left = where + 24 + this.tip.offsetWidth > this.host.clientWidth ? where - this.tip.offsetWidth : where + 24;
    this.tip.style.left = `${Math.max(left, 4)}px`;
    this.tip.style.top = '40px';
  }
}
function drawAll() { for (const chart of view.charts) chart.draw(); }
function zoom(range) {
  view.range = range;
  document.getElementById('whole').disabled = !range;
  drawAll();
}

function controls() {
  const axis = element('select', { onchange: () => { view.axis = axis.value; zoom(null); } },
    Object.entries(axes).map(([key, { name }]) => element('option', { value: key }, name)));
  const slider = element('input', { type: 'range', min: 0, max: 0.99, step: 0.01, value: 0, 'aria-label': 'smoothing',
    oninput: () => { view.smoothing = Number(slider.value); shown.textContent = slider.value; drawAll(); } });
  const shown = element('span', { class: 'soft', style: 'width:3em' }, '0');
  return element('div', { class: 'bar' }, element('label', {}, 'X axis', axis),
    element('label', {}, 'Smoothing', slider, shown),
    element('button', { id: 'whole', type: 'button', disabled: true, onclick: () => zoom(null) }, 'Whole run'),
    element('span', { class: 'soft' }, 'Drag over a chart to zoom in; double-click to see the whole run.'));
}
function charts() {
  view.charts = specs.map((spec) => new Chart(spec)).filter((chart) => chart.lines.some((line) => line.curve));
  if (!view.charts.length) return [];
  const of = (kind) => Math.max(...runs.flatMap((r) => Object.values(r.curves).map((c) => c[kind].length ?? c[kind])), 0);
  const all = of('points'), shown = of('values');
  return [element('h2', {}, 'Curves'), controls(), element('div', { class: 'charts' }, view.charts.map((c) => c.make())),
    all > shown ? element('p', { class: 'soft' }, `Curves show at most ${short(shown)} of up to ${short(all)} points, ` +
      'including the minimum and maximum of every stretch.') : null];
}

// --- Head ---

function chip(run) { return element('span', { class: `chip ${run.figures.state}` }, run.figures.state); }
function best(f) {
  return f.best_eval_loss === null || f.best_eval_loss === f.eval_loss ? '' : `best ${short(f.best_eval_loss)} at step ${short(f.best_eval_step)}`;
}
function tiles(f) {
  const tile = (name, value, more) => element('div', { class: 'tile' }, element('div', { class: 'soft' }, name),
    element('div', { class: 'value' }, value), element('div', { class: 'soft' }, more || '\u00a0'));
  const peak = f.peak_memory_mb ?? f.peak_rss_mb;
  return element('div', { class: 'tiles' },
    tile('Training loss', short(f.loss), 'last row'),
    f.eval_loss !== null ? tile('Evaluation loss', short(f.eval_loss), best(f)) : null,
    tile('Steps', short(f.step), f.max_steps ? `of ${short(f.max_steps)}` : ''),
    tile('Tokens', counted(f.tokens), 'trained on'),
    tile('Throughput', counted(f.tokens_per_second), 'tokens/s, mean'),
    tile('Training time', duration(f.seconds)),
    tile('Peak memory', mib(peak), f.planned_memory_mb ? `${mib(f.planned_memory_mb)} planned` : ''));
}
function notes(title, lines) {
  if (!lines.length) return null;
  const list = element('ul', {}, lines.map((line) => element('li', {}, line)));
  if (lines.length <= 4) return element('div', { class: 'card notes' }, element('h3', {}, title), list);
  return element('details', { class: 'card notes' }, element('summary', {}, `${title} (${lines.length})`), list);
}
function allNotes() {
  const prefix = (run) => many ? `${run.name}: ` : '';
  const unreadable = runs.flatMap((r) => r.missing.map((m) => prefix(r) + m));
  const warnings = runs.flatMap((r) => r.messages.filter((m) => m.level === 'warning').map((m) =>
    prefix(r) + m.text + (!m.step || m.text.startsWith('step ') ? '' : ` (after step ${short(m.step)})`)));
  for (const run of runs) for (const [key, curve] of Object.entries(run.curves))
    if (curve.not_finite) warnings.push(`${prefix(run)}${key} was not finite in ${short(curve.not_finite)} row${curve.not_finite === 1 ? '' : 's'}`);
  const ends = runs.filter((r) => r.end).map((r) => prefix(r) + r.end);
  return [notes('How it ended', ends), notes('Warnings', warnings), notes('Missing or damaged', unreadable)];
}
function head() {
  if (many) return [element('div', { class: 'head' }, element('h1', {}, `${runs.length} runs`)), figuresTable()];
  const run = runs[0], f = run.figures;
  return [element('div', { class: 'head' }, element('h1', {}, run.name), chip(run)),
    element('div', { class: 'soft' }, run.begun ? `${moment(run.begun)} to ${moment(run.last_row)} · ` : '', f.folder), tiles(f)];
}
function figuresTable() {
  const columns = [['Run', (r, i) => [element('span', { class: 'swatch', style: `background:${color(i)}` }), r.name], 'wrap'],
    ['State', (r) => chip(r), ''], ['Steps', (r) => stepOf(r.figures), 'n'], ['Training loss', (r) => short(r.figures.loss), 'n'],
    ['Evaluation loss', (r) => short(r.figures.eval_loss), 'n'], ['Best', (r) => short(r.figures.best_eval_loss), 'n'],
    ['Tokens', (r) => counted(r.figures.tokens), 'n'], ['Tokens/s', (r) => counted(r.figures.tokens_per_second), 'n'],
    ['Time', (r) => duration(r.figures.seconds), 'n'],
    ['Peak memory', (r) => mib(r.figures.peak_memory_mb ?? r.figures.peak_rss_mb), 'n']];
  return element('div', { class: 'card scroll', style: 'margin-top:12px' }, element('table', {},
    element('tr', {}, columns.map(([name, , kind]) => element('th', { class: kind }, name))),
    runs.map((run, i) => element('tr', {}, columns.map(([, value, kind]) => element('td', { class: kind }, value(run, i)))))));
}

// --- Memory and time ---

function shares(entries, format) {
  const total = entries.reduce((sum, [, x]) => sum + x, 0);
  if (!total) return null;
  return [element('div', { class: 'stack' }, entries.map(([name, x], i) =>
    element('div', { style: `width:${x / total * 100}%;background:${color(i)}`, title: `${name}: ${format(x)}` }))),
    element('table', {}, entries.map(([name, x], i) => element('tr', {},
      element('td', {}, element('span', { class: 'swatch', style: `background:${color(i)}` }), name.replaceAll('_', ' ')),
      element('td', { class: 'n' }, format(x)), element('td', { class: 'n soft' }, `${(x / total * 100).toFixed(1)} %`))))];
}
function memoryAndTime() {
  const cards = [];
  for (const run of runs) {
    const plan = Object.entries(run.memory_plan).filter(([name, x]) => name !== 'total' && x > 0).sort((a, b) => b[1] - a[1]);
    const f = run.figures, name = many ? `${run.name}: ` : '';
    if (plan.length) {
      const drawn = f.peak_memory_mb === null ? '' : `, at most ${mib(f.peak_memory_mb)} used`;
      cards.push(element('div', { class: 'card' }, element('h3', {}, `${name}Memory plan`),
        element('div', { class: 'soft' }, `${mib(f.planned_memory_mb)} planned${drawn}`),
        shares(plan, (x) => mib(x / 1048576))));
    }
    const phases = Object.entries(run.phases).filter(([, s]) => s > 0).sort((a, b) => b[1] - a[1]);
    if (phases.length) cards.push(element('div', { class: 'card' }, element('h3', {}, `${name}Time by phase`),
      shares(phases, duration)));
  }
  return cards.length ? [element('h2', {}, 'Memory and time'), element('div', { class: 'two' }, cards)] : [];
}

// --- Samples ---

function samples() {
  const steps = [...new Set(runs.flatMap((r) => r.samples.map((s) => s.step)))].sort((a, b) => a - b);
  if (!steps.length) return [];
  const prompts = [...new Set(runs.flatMap((r) => r.samples.flatMap((s) => s.rows.map(([prompt]) => prompt))))];
  const place = element('div', {}), label = element('strong', {});
  const show = (step) => {
    label.textContent = `step ${short(step)}`;
    place.replaceChildren(...prompts.map((prompt) => element('div', { class: 'card sample' }, element('pre', {}, prompt),
      element('div', { class: 'answers' }, runs.map((run, r) => {
        const there = run.samples.filter((s) => s.step <= step).pop();
        const row = there && there.rows.find(([asked]) => asked === prompt);
        if (!row && !many) return null;
        const name = many ? [element('span', { class: 'swatch', style: `background:${color(r)}` }), run.name, ' '] : [];
        const at = there && there.step !== step ? `(step ${short(there.step)})` : '';
        return element('div', {}, element('span', { class: 'soft' }, name, at),
          element('div', { style: 'white-space:pre-wrap;overflow-wrap:anywhere' }, row ? row[1] || '(empty)' : '–',
            row && row[2] === 'length' ? element('span', { class: 'soft', title: 'cut off at sample_max_new_tokens' }, ' …') : null));
      })))));
  };
  const slider = element('input', { type: 'range', min: 0, max: steps.length - 1, value: steps.length - 1, step: 1,
    'aria-label': 'step of the samples', oninput: () => show(steps[Number(slider.value)]) });
  show(steps[steps.length - 1]);
  const move = (by) => { slider.value = Number(slider.value) + by; show(steps[Number(slider.value)]); };
  return [element('h2', {}, 'Samples'), element('div', { class: 'tools' },
    element('button', { type: 'button', onclick: () => move(-1), 'aria-label': 'earlier' }, '‹'), slider,
    element('button', { type: 'button', onclick: () => move(1), 'aria-label': 'later' }, '›'), label,
    element('span', { class: 'soft' }, `greedy answers at ${steps.length} evaluation${steps.length === 1 ? '' : 's'}`)), place];
}

// --- Config and environment ---

const breakable = (name) => name.split(/(?<=_)/).flatMap((part) => [part, element('wbr')]);
const isDefault = (origin) => origin.startsWith('default');
function config() {
  if (!runs.some((r) => r.config.length)) return [];
  const keys = [...new Set(runs.flatMap((r) => r.config.map(([key]) => key)))];
  const of = runs.map((r) => new Map(r.config.map(([key, value, origin]) => [key, { value: value.replace(/^(-?\d+)\.0$/, '$1'), origin }])));
  const rows = keys.map((key) => {
    const values = of.map((m) => m.get(key) || { value: '–', origin: '' });
    return { key, values, given: values.some((v) => v.origin && !isDefault(v.origin)),
      differs: values.some((v) => v.value !== values[0].value) };
  });
  const body = element('tbody', {}), count = element('span', { class: 'soft' });
  const search = element('input', { type: 'search', placeholder: 'find a key', 'aria-label': 'find a key', oninput: () => show() });
  const kinds = many ? [['differ', 'that differ'], ['given', 'set in the config'], ['all', 'all']] : [['given', 'set in the config'], ['all', 'all']];
  const kind = element('select', { 'aria-label': 'which keys', onchange: () => show() },
    kinds.map(([value, name]) => element('option', { value }, name)));
  const show = () => {
    const wanted = search.value.trim().toLowerCase();
    const found = rows.filter((row) => (kind.value === 'all' || (kind.value === 'differ' ? row.differs : row.given)) &&
      row.key.toLowerCase().includes(wanted));
    count.textContent = `${found.length} of ${rows.length} keys`;
    body.replaceChildren(...found.map((row) => element('tr', { class: row.given && kind.value === 'all' ? 'given' : '' },
      element('td', { class: 'code' }, breakable(row.key)), row.values.flatMap((v) => [element('td', { class: 'code' }, v.value),
        many ? null : element('td', { class: 'soft wrap' }, v.origin)]))));
  };
  show();
  const names = many ? runs.map((r) => element('th', {}, r.name)) : [element('th', {}, 'Value'), element('th', {}, 'Origin')];
  return [element('h2', {}, 'Config'), element('div', { class: 'card' },
    element('div', { class: 'tools' }, element('label', {}, 'Keys ', kind), search, count),
    element('div', { class: 'scroll' }, element('table', {}, element('thead', {}, element('tr', {}, element('th', {}, 'Key'), names)), body)))];
}
function environment() {
  const names = [...new Set(runs.flatMap((r) => r.environment.map(([name]) => name)))];
  if (!names.length) return [];
  const of = runs.map((r) => new Map(r.environment));
  const head = many ? element('tr', {}, element('th', {}, ''), runs.map((r) => element('th', {}, r.name))) : null;
  return [element('h2', {}, 'Environment'), element('div', { class: 'card scroll' }, element('table', {}, head,
    names.map((name) => element('tr', {}, element('td', { class: 'wrap' }, /[./]/.test(name) ? name : name.replaceAll('_', ' ')),
      of.map((values) => element('td', { class: 'code' }, values.get(name) ?? '–'))))))];
}

document.getElementById('page').replaceChildren(...[head(), element('div', { style: 'margin-top:12px' }, allNotes()), charts(),
  memoryAndTime(), samples(), config(), environment(),
  element('footer', { class: 'soft' }, `qtrain ${data.version}. This page is self-contained and loads nothing from elsewhere.`)].flat(2).filter(Boolean));
drawAll();
new ResizeObserver(drawAll).observe(document.getElementById('page'));
