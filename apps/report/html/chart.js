
// Draws the charts that stand as JSON in the page: <figure data-chart="N"> gets the N-th.

// A series' values as points; x is the number of the category where there are categories.
const pointsOf = (series) => series.y.map((y, i) => ({
  x: series.x ? series.x[i] : i, y, low: series.low?.[i], high: series.high?.[i], label: series.labels?.[i] ?? '' }));

// Stretches of neighbours that can be drawn.
function segmentsOf(points, shows) {
  const segments = [[]];
  for (const point of points)
    if (shows(point)) segments[segments.length - 1].push(point);
    else if (segments[segments.length - 1].length) segments.push([]);
  return segments.filter((segment) => segment.length);
}

function intervalText(point, unit) {
  const value = withUnit(point.y, unit);
  return point.low === undefined ? value : `${value} (${figureText(point.low)} to ${figureText(point.high)})`;
}

// The points that no other beats, from left to right. On an axis where high is better x is turned.
function frontOf(points, kind) {
  const sign = kind === 'high_x_low_y' ? -1 : 1;
  const sorted = [...points].sort((a, b) => sign * (a.x - b.x) || a.y - b.y);
  const front = [];
  for (const point of sorted) if (!front.length || point.y < front[front.length - 1].y) front.push(point);
  return sign < 0 ? front.reverse() : front;
}

// What cannot be drawn, in words: a sentence for each series and reason.
function gapsOf(chart, all, shows, isHidden) {
  const sentences = [];
  chart.series.forEach((series, s) => {
    const missing = isHidden(s) ? [] : all[s].filter((p) => !shows(p));
    const isNumber = (p) => typeof p.y === 'number' && typeof p.x === 'number';
    for (const [points, why] of [[missing.filter((p) => !isNumber(p)), ''], [missing.filter(isNumber), ', which this axis cannot show']]) {
      if (!points.length) continue;
      const [first] = points;
      const value = typeof first.y === 'number' && typeof first.x !== 'number' ? first.x : first.y;
      const where = chart.categories.length ? visible(chart.categories[first.x]) : `${visible(chart.x.title)} ${figureText(first.x)}`;
      const more = points.length > 1 ? ` and ${points.length - 1} more` : '';
      sentences.push(`${visible(series.name)}: ${figureText(value)} at ${where}${more}${why}.`);
    }
  });
  return sentences;
}

function dataTable(chart, all) {
  const rows = [];
  const axis = (a, fallback) => visible(a.title || fallback) + (a.unit ? ', ' + visible(a.unit) : '');
  const interval = all.some((points) => points.some((p) => p.low !== undefined));
  const labels = all.some((points) => points.some((p) => p.label));
  all.forEach((points, s) => {
    for (const p of points) {
      const x = chart.categories.length ? visible(chart.categories[p.x]) : String(p.x);
      const cells = [x, String(p.y), ...(interval ? [String(p.low ?? ''), String(p.high ?? '')] : []), ...(labels ? [visible(p.label)] : [])];
      rows.push(html('tr', {}, html('th', { scope: 'row' }, visible(chart.series[s].name)), ...cells.map((c) => html('td', {}, c))));
    }
  });
  const names = ['series', axis(chart.x, 'x'), axis(chart.y, 'y'), ...(interval ? ['from', 'to'] : []), ...(labels ? ['name'] : [])];
  return html('table', {}, html('caption', {}, visible(chart.title)),
    html('thead', {}, html('tr', {}, ...names.map((n) => html('th', { scope: 'col' }, n)))), html('tbody', {}, ...rows));
}

function drawChart(figure, chart, number) {
  const all = chart.series.map(pointsOf);
  const names = chart.series.map((series) => series.name);
  const filled = chart.series.map((_, s) => s).filter((s) => all[s].length);
  const bars = chart.kind === 'bar' || chart.kind === 'histogram';
  const hidden = new Set();
  let frame, stops = [], overlay = svg('g', {});

  const patternOf = (s) => `pattern-${number}-${s}`;
  function swatch(s) {
    const picture = svg('svg', { class: 'swatch ' + colourOf(s), viewBox: '0 0 34 12', 'aria-hidden': 'true' });
    if (bars) {
      const block = svg('rect', { class: 'bar', x: 8, y: 0, width: 18, height: 12 });
      block.style.fill = `url(#${patternOf(s)})`;
      picture.append(block);
      return picture;
    }
    if (chart.kind === 'line')
      picture.append(svg('path', { class: 'line', d: 'M0 6h34', 'stroke-dasharray': dashOf(s) }));
    picture.append(svg('path', { class: 'point', d: markerOf(s)(17, 6, 3.2) }));
    return picture;
  }
  // Bars differ by how they are hatched, too.
  function patterns() {
    const hatch = ['', 'M0 0V6', 'M0 0H6', 'M0 0V6M0 0H6', 'M1 1h2v2h-2z'];
    return svg('defs', {}, ...chart.series.map((_, s) => svg('pattern',
      { id: patternOf(s), class: colourOf(s), width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      svg('rect', { class: 'ink', width: 6, height: 6 }),
      svg('path', { d: hatch[s % hatch.length] || 'M0 0', stroke: 'var(--paper)', 'stroke-width': 2.5, fill: 'none' }))));
  }

  const plot = html('div', { class: 'plot', tabindex: 0, role: 'group',
    'aria-label': `${visible(chart.title)}: chart; arrow keys read its values` });
  const box = html('div', { class: 'readout', role: 'status', hidden: '' });
  const notes = html('div', {});
  const readout = attachReadout(plot, box, () => overlay, {
    stops: () => stops, size: () => frame, names, swatch,
    near: (list, x, y) => {
      const flat = chart.kind === 'scatter' ? 1 : 0;
      let best = -1, least = Infinity;
      list.forEach((stop, i) => {
        const distance = Math.hypot(stop.x - x, flat * (stop.y - y));
        if (distance < least) { least = distance; best = i; }
      });
      return best;
    } });

  // A frame with room for the names of the ticks, then the two scales.
  function layout(shown) {
    const width = Math.max(Math.round(plot.clientWidth) || 640, 240);
    const height = Math.round(Math.min(Math.max(width * 0.5, 250), 340));
    const longest = Math.max(0, ...chart.categories.map((c) => Math.min(c.length, 22))) * 6.6;
    const yValues = shown.flatMap((s) => all[s].flatMap((p) => [p.y, p.low, p.high]));
    const top = 24, categories = chart.categories.length;
    const guess = width - 60;
    const turned = bars && longest > guess / Math.max(categories, 1) - 6 && chart.kind === 'bar';
    const bottom = height - 44 - (turned ? longest * 0.62 : 0);
    const y = makeScale(chart.y, yValues, bottom, top, { count: Math.max(3, Math.floor((bottom - top) / 45)), pad: 0.04, zero: bars });
    const yTexts = tickTexts(chart.y, y.ticks);
    const left = 12 + Math.max(...yTexts.map((t) => t.length), 1) * 7, right = width - 14;
    const x = bars ? null : makeScale(chart.x, shown.flatMap((s) => all[s].map((p) => p.x)), left, right,
      { count: Math.max(2, Math.floor((right - left) / 90)), pad: chart.kind === 'scatter' ? 0.05 : 0.01 });
    return { width, height, left, right, top, bottom, x, y, yTexts, turned };
  }

  function axes(drawing) {
    const { left, right, top, bottom, x, y, yTexts, height, turned } = frame;
    y.ticks.forEach((tick, i) => {
      const at = y.at(tick);
      if (at < top - 1 || at > bottom + 1) return;
      drawing.append(svg('line', { class: 'grid', x1: left, x2: right, y1: at, y2: at }),
        svg('text', { x: left - 6, y: at + 4, 'text-anchor': 'end' }, yTexts[i]));
    });
    drawing.append(svg('text', { x: 0, y: 12 }, axisName(chart.y)),
      svg('line', { class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom }));
    if (x) tickTexts(chart.x, x.ticks).forEach((text, i) => {
      const at = x.at(x.ticks[i]);
      if (at < left - 1 || at > right + 1) return;
      drawing.append(svg('line', { class: 'axis', x1: at, x2: at, y1: bottom, y2: bottom + 4 }),
        svg('text', { x: at, y: bottom + 17, 'text-anchor': 'middle' }, text));
    });
    else {
      const band = (right - left) / chart.categories.length;
      const longest = Math.max(...chart.categories.map((c) => c.length), 1) * 7 + 6;
      const stride = turned ? Math.ceil(14 / band) : Math.max(1, Math.ceil(longest / band));
      chart.categories.forEach((category, i) => {
        if (i % stride) return;
        const at = left + (i + 0.5) * band;
        const room = turned ? Math.min(22, Math.floor(at / 5.3)) : 22;  // to the left edge, aslant
        const name = visible(category.length > room ? category.slice(0, Math.max(room - 1, 1)) + '\u2026' : category);
        drawing.append(turned
          ? svg('text', { x: at, y: bottom + 14, 'text-anchor': 'end', transform: `rotate(-38 ${at} ${bottom + 14})` }, name)
          : svg('text', { x: at, y: bottom + 17, 'text-anchor': 'middle' }, name));
      });
    }
    drawing.append(svg('text', { x: right, y: height - 6, 'text-anchor': 'end' }, axisName(chart.x)));
  }

  const fits = (p) => frame.y.shows(p.y) && (bars || frame.x.shows(p.x));

  function gapMarks(drawing, s) {
    for (const p of all[s]) {
      if (fits(p) || !(bars || frame.x.shows(p.x))) continue;
      const at = bars ? frame.left + (p.x + 0.5) * (frame.right - frame.left) / chart.categories.length : frame.x.at(p.x);
      const edge = p.y === 'inf' ? frame.top : frame.bottom;
      drawing.append(svg('path', { class: 'gap ' + colourOf(s), d: `M${at - 4} ${edge - 4}l8 8m0 -8l-8 8` }));
    }
  }

  function whisker(at, p) {
    if (!frame.y.shows(p.low) || !frame.y.shows(p.high)) return [];
    const low = frame.y.at(p.low), high = frame.y.at(p.high);
    return [svg('path', { class: 'whisker', d: `M${at - 3} ${low}h6M${at - 3} ${high}h6M${at} ${low}V${high}` })];
  }

  // Every point has its marker where there is room, else a few have, not the same ones in each series.
  function markerStride(segments, s) {
    const points = segments.reduce((sum, segment) => sum + segment.length, 0);
    if (points * 14 <= frame.right - frame.left) return { every: 1, first: 0 };
    const every = Math.ceil(points / 8);
    return { every, first: Math.floor(every * (0.5 + s * 0.37)) };
  }

  function paintLine(drawing, s) {
    const group = svg('g', { class: colourOf(s), 'data-series': s });
    const px = (p) => frame.x.at(p.x).toFixed(2), py = (v) => frame.y.at(v).toFixed(2);
    const segments = segmentsOf(all[s], fits);
    for (const segment of segments) {
      const banded = segment.filter((p) => frame.y.shows(p.low) && frame.y.shows(p.high));
      if (banded.length > 1)
        group.append(svg('path', { class: 'band', d: 'M' + [...banded.map((p) => `${px(p)} ${py(p.high)}`),
          ...banded.reverse().map((p) => `${px(p)} ${py(p.low)}`)].join('L') + 'z' }));
    }
    if (segments.length)
      group.append(svg('path', { class: 'line mark', 'stroke-dasharray': dashOf(s),
        d: segments.map((segment) => 'M' + segment.map((p) => `${px(p)} ${py(p.y)}`).join('L')).join('') }));
    const stride = markerStride(segments, s);
    let count = stride.first;
    for (const segment of segments)
      for (const p of segment) {
        if (segment.length === 1) group.append(...whisker(frame.x.at(p.x), p));
        if (count++ % stride.every === 0 || segment.length === 1)
          group.append(svg('path', { class: 'point', d: markerOf(s)(frame.x.at(p.x), frame.y.at(p.y), 3.2) }));
      }
    drawing.append(group);
  }

  function paintScatter(drawing, s, best) {
    const group = svg('g', { class: colourOf(s), 'data-series': s });
    for (const p of all[s].filter(fits)) {
      const at = frame.x.at(p.x);
      group.append(...whisker(at, p), svg('path', { class: 'point mark' + (best.has(p) ? ' best' : ''), d: markerOf(s)(at, frame.y.at(p.y), 4.2) }));
    }
    drawing.append(group);
  }

  // From each point of the front to the next along the border of what it beats.
  function paintFront(drawing, front) {
    if (front.length < 2) return;
    const turn = chart.front === 'high_x_low_y' ? (p, next) => `V${frame.y.at(next.y)}H${frame.x.at(next.x)}` : (p, next) => `H${frame.x.at(next.x)}V${frame.y.at(next.y)}`;
    const d = front.slice(1).map((next, i) => turn(front[i], next)).join('');
    drawing.append(svg('path', { class: 'front', d: `M${frame.x.at(front[0].x)} ${frame.y.at(front[0].y)}${d}` }));
  }

  // Left edge and width of a series' bar within its category.
  function barAt(shown, s, i) {
    const band = (frame.right - frame.left) / chart.categories.length;
    const filled = chart.kind === 'histogram' ? 1 : 0.76;
    const width = band * filled / shown.length;
    return [frame.left + i * band + band * (1 - filled) / 2 + shown.indexOf(s) * width, width];
  }
  const floor = () => chart.y.log ? frame.bottom : frame.y.at(0);
  function paintBars(drawing, s, shown) {
    const group = svg('g', { class: colourOf(s), 'data-series': s });
    for (const p of all[s].filter(fits)) {
      const [x, width] = barAt(shown, s, p.x), y = frame.y.at(p.y);
      const bar = svg('rect', { class: 'bar mark', x, width: Math.max(width, 0.5), y: Math.min(y, floor()), height: Math.abs(y - floor()) });
      bar.style.fill = `url(#${patternOf(s)})`;
      group.append(bar, ...whisker(x + width / 2, p));
    }
    drawing.append(group);
  }

  const rowOf = (s, p, text, x) => ({ s, text, x, y: fits(p) ? frame.y.at(p.y) : undefined });
  function lineStops(shown) {
    const places = new Map();  // by pixel, so that curves of different steps do not flicker
    for (const s of shown)
      for (const p of all[s]) if (frame.x.shows(p.x)) {
        const key = Math.round(frame.x.at(p.x) * 2);
        if (!places.has(key)) places.set(key, []);
        places.get(key).push({ s, p });
      }
    return [...places.entries()].sort((a, b) => a[0] - b[0]).map(([, found]) => ({
      x: frame.x.at(found[0].p.x), y: 0, title: `${chart.x.title} ${withUnit(found[0].p.x, chart.x.unit)}`,
      rows: () => found.map(({ s, p }) => rowOf(s, p, intervalText(p, chart.y.unit) + (p.label ? ', ' + p.label : ''), frame.x.at(p.x))) }));
  }
  function scatterStops(shown) {
    const stops = shown.flatMap((s) => all[s].filter(fits).map((p) => ({
      x: frame.x.at(p.x), y: frame.y.at(p.y), title: p.label || names[s],
      rows: () => [rowOf(s, p, `${withUnit(p.x, chart.x.unit)}, ${intervalText(p, chart.y.unit)}`, frame.x.at(p.x))] })));
    return stops.sort((a, b) => a.x - b.x);
  }
  const barStops = (shown) => chart.categories.map((category, i) => ({
    x: frame.left + (i + 0.5) * (frame.right - frame.left) / chart.categories.length, y: 0, title: category,
    rows: () => shown.filter((s) => all[s].length).map((s) => { const [x, width] = barAt(shown, s, i); return rowOf(s, all[s][i], intervalText(all[s][i], chart.y.unit), x + width / 2); }) }));

  function paint() {
    const visibleSeries = filled.filter((s) => !hidden.has(s));
    const shown = visibleSeries.length ? visibleSeries : filled;
    frame = layout(shown);
    const drawing = svg('svg', { viewBox: `0 0 ${frame.width} ${frame.height}`, role: 'img', 'aria-labelledby': 'chart-' + number });
    if (bars) drawing.append(patterns());
    axes(drawing);
    const points = visibleSeries.flatMap((s) => all[s].filter(fits));
    const front = chart.front === 'none' ? [] : frontOf(points, chart.front);
    paintFront(drawing, front);
    for (const s of visibleSeries) {
      if (bars) paintBars(drawing, s, visibleSeries);
      else if (chart.kind === 'scatter') paintScatter(drawing, s, new Set(front));
      else paintLine(drawing, s);
      gapMarks(drawing, s);
    }
    overlay = svg('g', {});
    drawing.append(overlay);
    stops = bars ? barStops(visibleSeries) : chart.kind === 'scatter' ? scatterStops(visibleSeries) : lineStops(visibleSeries);
    plot.querySelector('svg')?.remove();
    plot.prepend(drawing);
    readout.hide();
    const said = [chart.note && visible(chart.note), ...gapsOf(chart, all, fits, (s) => hidden.has(s)),
      chart.points && `${chart.points} points: of neighbours that would fall on each other the lowest and the highest are drawn.`];
    notes.replaceChildren(...said.filter(Boolean).map((text) => html('p', { class: 'note' }, text)));
  }

  function legend() {
    const list = html('ul', { class: 'legend' });
    for (const s of filled) {
      const only = filled.length === 1;
      const entry = html(only ? 'span' : 'button', { class: 'entry', ...(only ? {} : { type: 'button', 'aria-pressed': 'true' }) }, swatch(s), visible(names[s]));
      if (!only) entry.addEventListener('click', () => {
        if (!hidden.delete(s)) hidden.add(s);
        entry.setAttribute('aria-pressed', String(!hidden.has(s)));
        paint();
      });
      list.append(html('li', {}, entry));
    }
    if (chart.front !== 'none')
      list.append(html('li', {}, html('span', { class: 'entry' }, svg('svg', { class: 'swatch', viewBox: '0 0 34 12', 'aria-hidden': 'true' },
        svg('path', { class: 'front', d: 'M0 6h34' })), 'Pareto front, its points filled')));
    return list;
  }

  const details = html('details', {}, html('summary', {}, 'Data of this chart'));
  details.addEventListener('toggle', () => {
    if (details.open && details.childElementCount === 1)
      details.append(html('div', { class: 'data', tabindex: 0, role: 'region', 'aria-label': 'Data: ' + visible(chart.title) }, dataTable(chart, all)));
  });
  plot.append(box);
  figure.append(plot, legend(), notes, details);
  paint();
  let drawn = plot.clientWidth;
  new ResizeObserver(() => {
    if (plot.clientWidth && plot.clientWidth !== drawn) { drawn = plot.clientWidth; paint(); }
  }).observe(plot);
}

const charts = JSON.parse(document.getElementById('charts').textContent);
for (const figure of document.querySelectorAll('figure[data-chart]'))
  drawChart(figure, charts[Number(figure.dataset.chart)], figure.dataset.chart);
