
// Numbers, axes and small helpers of the charts.

// Text as elements show it: control characters as their pictures, as html_text() does.
const visible = (text) => String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g,
  (c) => c === '\u007f' ? '\u2421' : String.fromCharCode(0x2400 + c.charCodeAt(0)));

// Four digits that count; the same in every language.
function figureText(value) {
  if (typeof value !== 'number') return { nan: 'not a number', inf: 'infinite', '-inf': '-infinite' }[value];
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2).replace(/\.?0+e/, 'e').replace('e+', 'e');
  if (size >= 1000) return value.toFixed(0);
  return String(Number(value.toPrecision(4)));
}
const withUnit = (value, unit) => figureText(value) + (unit && typeof value === 'number' ? ' ' + unit : '');
const axisName = (axis) => visible(axis.title + (axis.unit ? ', ' + axis.unit : '') + (axis.log ? ' (log)' : ''));

// Steps of 1, 2 or 5 times a power of ten, about `count` of them and three at least.
function linearTicks(low, high, count) {
  let ticks = [];
  for (let n = Math.max(count, 1); ticks.length < 3 && n <= 2 * count + 6; ++n) ticks = stepsOf(low, high, (high - low) / n);
  return ticks;
}
function stepsOf(low, high, rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || 10 * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push(i * step);
  return ticks;
}

const decimalsOf = (ticks) => ticks.length < 2 ? 0 : Math.max(0, -Math.floor(Math.log10(ticks[1] - ticks[0]) + 1e-9));
function tickTexts(axis, ticks) {
  const plain = ticks.every((t) => t === 0 || (Math.abs(t) < 1e7 && Math.abs(t) >= 1e-4));
  return axis.log || !plain ? ticks.map(figureText) : ticks.map((t) => t.toFixed(decimalsOf(ticks)));
}

// Powers of ten; where the axis has few of them 2 and 5 times those, too.
function logTicks(low, high, count) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const stride = Math.max(1, Math.ceil((to - from) / Math.max(count, 1)));
  const factors = to - from <= 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let e = from; e <= to; e += stride)
    for (const factor of factors) {
      const tick = factor * 10 ** e;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  return ticks.length >= 2 ? ticks : linearTicks(low, high, count).filter((t) => t > 0);
}

// Maps values to pixels from..to. `shows` says whether a value has a place on the axis at all.
function makeScale(axis, values, from, to, { count, pad = 0, zero = false }) {
  const shows = (v) => typeof v === 'number' && Math.abs(v) < 1e300 && (!axis.log || v > 0);
  const map = axis.log ? Math.log10 : (v) => v;
  const unmap = axis.log ? (v) => 10 ** v : (v) => v;
  let low = Infinity, high = -Infinity;
  for (const v of values) if (shows(v)) { low = Math.min(low, map(v)); high = Math.max(high, map(v)); }
  if (!(low <= high)) { low = 0; high = 1; }
  if (zero && !axis.log) { low = Math.min(low, 0); high = Math.max(high, 0); }
  if (low === high) { const room = Math.abs(low) * 0.1 || 1; low -= room; high += room; }
  const room = (high - low) * pad;
  const fixed = zero && !axis.log;  // bars stand on zero
  if (!(fixed && low === 0)) low -= room;
  if (!(fixed && high === 0)) high += room;
  const at = (v) => from + (map(v) - low) / (high - low) * (to - from);
  const ticks = (axis.log ? logTicks : linearTicks)(unmap(low), unmap(high), count);
  return { at, shows, ticks, low: unmap(low), high: unmap(high) };
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
function html(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const kDashes = ['', '7 3', '2 3', '10 3 2 3', '4 2', '12 4', '7 3 2 3 2 3'];
const kMarkers = [
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (x, y, r) => `M${x} ${y - 1.3 * r}l${1.2 * r} ${2.2 * r}h${-2.4 * r}z`,
  (x, y, r) => `M${x} ${y - 1.4 * r}l${1.4 * r} ${1.4 * r}l${-1.4 * r} ${1.4 * r}l${-1.4 * r} ${-1.4 * r}z`,
  (x, y, r) => `M${x} ${y + 1.3 * r}l${1.2 * r} ${-2.2 * r}h${-2.4 * r}z`,
  (x, y, r) => `M${x - 1.5 * r} ${y - 0.6 * r}h${3 * r}v${1.2 * r}h${-3 * r}z`,
  (x, y, r) => `M${x - 0.6 * r} ${y - 1.5 * r}h${1.2 * r}v${3 * r}h${-1.2 * r}z`,
];
const colourOf = (s) => 'c' + s % 8;
const dashOf = (s) => kDashes[s % kDashes.length];
const markerOf = (s) => kMarkers[s % kMarkers.length];
