// A table of records, in an element that scrolls by itself.

import {element} from './elements.js';
import {redraw} from './focus.js';

export class Table {
  #marked = null;
  #sorted = null;
  #records = [];
  #head = element('tr');

  /** A column has `field`, `title`, and may have `look`, `show` (a record's content) and `sorts` (false for no). `key` gives
      the key of a record; `sort` is called with the field of a clicked column, without it nothing is sorted. */
  constructor({id, label, columns, key = record => record.id, sort = null}) {
    this.key = key;
    this.sort = sort;
    this.body = element('tbody');
    this.table = element('table', {id}, element('thead', {}, this.#head), this.body);
    this.place = element('div', {class: 'scroll', tabindex: '0', role: 'group', 'aria-label': `Table: ${label}`}, this.table);
    this.place.addEventListener('keydown', event => this.#move(event));
    this.choose(columns);
  }

  /** Shows other columns of the same records. */
  choose(columns) {
    this.columns = columns;
    this.#head.replaceChildren(...columns.map(({field, title, look = '', sorts = true}) => element('th', {scope: 'col', class: look},
      this.sort && sorts ? element('button', {type: 'button', class: 'link', text: title, onclick: () => this.sort(field)}) : title)));
    this.sorted(this.#sorted);
    this.draw(this.#records);
  }

  draw(records) {
    this.#records = records;
    redraw(this.body, records.map(record => this.#row(record)));
  }

  /** Marks the row of the open record; null for none. */
  mark(key) {
    this.#marked = String(key);
    for (const row of this.body.rows) row.ariaCurrent = this.#current(row.dataset.key);
  }

  /** Shows by which field the records are sorted, such as `-id`. */
  sorted(sort) {
    this.#sorted = sort;
    for (const [index, {field}] of this.columns.entries()) {
      const head = this.#head.cells[index];
      if (sort === field) head.ariaSort = 'ascending';
      else if (sort === `-${field}`) head.ariaSort = 'descending';
      else head.removeAttribute('aria-sort');
    }
  }

  row(key) {
    return this.body.querySelector(`tr[data-key="${CSS.escape(key)}"]`);
  }

  cell(key, field) {
    return this.row(key)?.cells[this.columns.findIndex(column => column.field === field)];
  }

  /** Up and down lead from row to row. */
  #move(event) {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = [...this.body.rows].indexOf(event.target.closest('tbody tr'));
    const next = this.body.rows[at < 0 ? Math.min(0, step) : at + step]?.querySelector('a, button, summary');
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  #current(key) {
    return key === this.#marked ? 'true' : null;
  }

  #row(record) {
    const key = String(this.key(record));
    return element('tr', {'data-key': key, 'aria-current': this.#current(key)}, ...this.columns.map(({field, look = '', show}) =>
      element('td', {class: look}, show ? show(record) : String(record[field] ?? ''))));
  }
}
