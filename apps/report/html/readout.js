
// What a chart tells under the pointer, under a finger and by arrow keys.

// `stops()` are the places where there is something to tell, from left to right: {x, y, title, rows},
// rows being [{s, text, x, y}]; `near` finds the one meant by a point of the drawing.
function attachReadout(plot, box, overlay, { stops, near, size, names, swatch }) {
  let current = -1;

  function show(index) {
    const all = stops();
    current = index;
    overlay().replaceChildren();
    box.replaceChildren();
    box.hidden = !all[index];
    if (box.hidden) return;
    const stop = all[index], { width, top, bottom } = size();
    overlay().append(svg('line', { class: 'cursor', x1: stop.x, x2: stop.x, y1: top, y2: bottom }));
    box.append(html('strong', {}, visible(stop.title)));
    for (const row of stop.rows()) {
      if (row.y !== undefined)
        overlay().append(svg('path', { class: 'here ' + colourOf(row.s), d: markerOf(row.s)(row.x, row.y, 4) }));
      box.append(html('div', { class: 'entry' }, swatch(row.s), visible(names[row.s] + ': ' + row.text)));
    }
    const right = stop.x > width / 2;
    box.style.left = right ? '' : (stop.x / width * 100 + 2) + '%';
    box.style.right = right ? ((1 - stop.x / width) * 100 + 2) + '%' : '';
  }

  function point(event) {
    const frame = plot.querySelector('svg').getBoundingClientRect(), { width } = size();
    const scale = width / frame.width;
    show(near(stops(), (event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale));
  }
  plot.addEventListener('pointermove', point);
  plot.addEventListener('pointerdown', point);
  plot.addEventListener('pointerleave', (event) => { if (event.pointerType !== 'touch') show(-1); });
  plot.addEventListener('blur', () => show(-1));
  plot.addEventListener('keydown', (event) => {
    const last = stops().length - 1;
    const to = { ArrowRight: Math.min(current + 1, last), ArrowLeft: current < 0 ? last : Math.max(current - 1, 0),
                 Home: 0, End: last, Escape: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
  return { hide: () => show(-1) };
}
