
// Tables sorted by a column: a button in each head cell, the direction said by aria-sort.

// What a cell is sorted by: its key or its text, a number where that is one; null: nothing, last.
function sortKey(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.key || cell.textContent.trim();
  if (text === '') return null;
  return Number.isNaN(Number(text)) ? text : Number(text);
}

function compareKeys(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a !== typeof b) return typeof a === 'number' ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = html('button', { type: 'button' }, ...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') === 'ascending';
      for (const other of heads) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const rows = [...table.tBodies[0].rows].map((row) => [sortKey(row, column), row]);
      rows.sort(([a], [b]) => a === null || b === null || !down ? compareKeys(a, b) : compareKeys(b, a));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}

for (const table of document.querySelectorAll('table.sortable')) makeSortable(table);
