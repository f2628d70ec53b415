// A table of records, in an element that scrolls by itself.
// @ts-check

import {element} from './elements.js';
import {redraw} from './focus.js';

/** @typedef {Record<string, any>} Data of a record. */
/** `look` is the class of its cells, `show` gives the content for a record; `sorts` is false if nothing is sorted by it. Of a
    list whose columns a user chooses, a `fixed` one is always shown, an `extra` one not at first.
    @typedef {{field: string, title: string, look?: string, show?: (record: Data) => string | Node, sorts?: boolean,
      fixed?: boolean, extra?: boolean}} Column */

export class Table {
  /** @type {string | null} */
  #marked = null;
  /** @type {string | null} */
  #sorted = null;
  /** @type {Data[]} */
  #records = [];
  /** @type {HTMLTableRowElement} */
  #head = element('tr');

  /** `key` gives the key of a record; `sort` is called with the field of a clicked column, without it nothing is sorted.
      @param {{id: string, label: string, columns: Column[], key?: (record: Data) => any,
        sort?: ((field: string) => void) | null}} spec */
  constructor({id, label, columns, key = record => record.id, sort = null}) {
    this.key = key;
    this.sort = sort;
    this.columns = columns;
    /** @type {HTMLTableSectionElement} */
    this.body = element('tbody');
    this.table = element('table', {id}, element('thead', {}, this.#head), this.body);
    this.place = element('div', {class: 'scroll', tabindex: '0', role: 'group', 'aria-label': `Table: ${label}`}, this.table);
    this.place.addEventListener('keydown', this.#move.bind(this));
    this.choose(columns);
  }

  /** Shows other columns of the same records. @param {Column[]} columns */
  choose(columns) {
    this.columns = columns;
    this.#head.replaceChildren(...columns.map(({field, title, look = '', sorts = true}) => element('th', {scope: 'col', class: look},
      this.sort && sorts ? element('button', {type: 'button', class: 'link', text: title, onclick: () => this.sort?.(field)}) : title)));
    this.sorted(this.#sorted);
    this.draw(this.#records);
  }

  /** @param {Data[]} records */
  draw(records) {
    this.#records = records;
    redraw(this.body, records.map(record => this.#row(record)));
  }

  /** Marks the row of the open record; null for none. @param {string | null} key */
  mark(key) {
    this.#marked = String(key);
    for (const row of this.body.rows) row.ariaCurrent = this.#current(row.dataset.key);
  }

  /** Shows by which field the records are sorted, such as `-id`. @param {string | null} sort */
  sorted(sort) {
    this.#sorted = sort;
    for (const [index, {field}] of this.columns.entries()) {
      const head = this.#head.cells[index];
      if (sort === field) head.ariaSort = 'ascending';
      else if (sort === `-${field}`) head.ariaSort = 'descending';
      else head.removeAttribute('aria-sort');
    }
  }

  /** @param {string | number} key @returns {HTMLTableRowElement | null} */
  row(key) {
    return this.body.querySelector(`tr[data-key="${CSS.escape(String(key))}"]`);
  }

  /** @param {string | number} key @param {string} field */
  cell(key, field) {
    return this.row(key)?.cells[this.columns.findIndex(column => column.field === field)];
  }

  /** Up and down lead from row to row. @param {KeyboardEvent & {target: Element}} event */
  #move(event) {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = [...this.body.rows].findIndex(row => row.contains(event.target));
    const row = this.body.rows[at < 0 ? Math.min(0, step) : at + step];
    const next = /** @type {HTMLElement | null | undefined} */ (row?.querySelector('a, button, summary'));
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  /** @param {string | undefined} key */
  #current(key) {
    return key === this.#marked ? 'true' : null;
  }

  /** @param {Data} record */
  #row(record) {
    const key = String(this.key(record));
    return element('tr', {'data-key': key, 'aria-current': this.#current(key)}, ...this.columns.map(({field, look = '', show}) =>
      element('td', {class: look}, show ? show(record) : String(record[field] ?? ''))));
  }
}
