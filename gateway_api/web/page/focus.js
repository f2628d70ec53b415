// Lists that are drawn again, and the keyboard focus meanwhile. Their rows may have a `data-key`, the same for the same record.

const CONTROLS = 'a, button:not(:disabled), summary';

/** Shows rows, each new. One that looks as before stays: a user may be about to click it. The control that has the focus
    keeps it. */
export function redraw(place, rows) {
  const find = place.contains(document.activeElement) && finder(document.activeElement);
  const former = [...place.children];
  for (const [at, row] of rows.entries()) {
    if (!former[at]) place.append(row);
    else if (!former[at].isEqualNode(row)) former[at].replaceWith(row);
  }
  for (const row of former.slice(rows.length)) row.remove();
  if (find) find()?.focus({preventScroll: true});
}

/** Returns a function that finds a control again: itself, or the same one of its row. Without its row it is that of the row
    that is there now, or of the nearest one. Without any row it is what holds the list. */
export function finder(control) {
  const row = control.closest('[data-key]');
  if (!row) return () => control;
  const place = row.parentElement, {key} = row.dataset;
  const index = [...place.children].indexOf(row), number = controls(row).indexOf(control);
  return () => {
    if (control.isConnected) return control;
    const rows = [...place.children].map((other, at) => ({
      far: other.dataset.key === key ? -1 : Math.abs(at - index), held: controls(other),
    }));
    const [nearest] = rows.filter(({held}) => held.length).sort((one, other) => one.far - other.far);
    return nearest ? nearest.held[number] ?? nearest.held.at(-1) : place.closest('[tabindex]');
  };
}

const controls = row => [...row.querySelectorAll(CONTROLS)];
