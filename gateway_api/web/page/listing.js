// A list of the API as a table: one page at a time, filtered, sorted, exported. The query of the URL says which part is shown.
// @ts-check

import {Unreachable} from './api.js';
import {Columns} from './columns.js';
import {save} from './csv.js';
import {attempt} from './dialogs.js';
import {byId, complain, element, show, write} from './elements.js';
import {count, timeOfDay} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {Table} from './table.js';
import * as views from './views.js';

const PAGE = 50;

/** @typedef {import('./table.js').Column} Column @typedef {import('./table.js').Data} Data */
/** `id` of its elements; `records` is their name in the response; `filters` are the parameters that the URL may have; `sort`
    is the default order, null if the API does not sort; `chooses` is true if a user chooses the columns; `seconds` between
    two reads; `most` records of a response.
    @typedef {{id: string, view: string, title: string, path: string, records: string, columns: Column[], filters: string[],
      key?: (record: Data) => any, sort?: string | null, chooses?: boolean, seconds?: number | null, most?: number}} Spec */

/** Emits `read`: its `detail` is the page that is shown. */
export class Listing extends EventTarget {
  #query = new URLSearchParams();
  // The cursor of each page up to the current one.
  #cursors = new Map();
  /** @type {string | null} */
  #next = null;
  // When the list was read, in epoch seconds, and whether the gateway has not responded since.
  /** @type {number | null} */
  #readAt = null;
  #missed = false;

  /** Builds the list in `place`.
      @param {import('./api.js').Api} api @param {Element} place @param {Spec} spec */
  constructor(api, place, spec) {
    super();
    this.api = api;
    this.spec = {sort: '', seconds: null, most: 10_000, ...spec};
    const {id, view, title, columns, key, sort} = this.spec;
    this.table = new Table({id, label: title, columns, key, sort: sort === null ? null : field => this.#sortBy(field)});
    this.#build(place);
    if (this.spec.chooses) new Columns(id, columns, this.table);
    api.addEventListener('reachable', () => this.#missed && this.poll.now());
    this.poll = new Poll(this.spec.seconds, () => this.#read(), [view]);
    byId(`${id}-next`).addEventListener('click', () => views.amend({page: this.#page + 1, cursor: this.#next}));
    byId(`${id}-previous`).addEventListener('click', () => this.#back());
    byId(`${id}-refresh`).addEventListener('click', () => this.poll.now());
    byId(`${id}-export`).addEventListener('click', () => this.#export());
  }

  get #page() {
    return Math.max(1, Math.trunc(Number(this.#query.get('page'))) || 1);
  }

  get isFirst() {
    return this.#page === 1;
  }

  get #sort() {
    return this.#query.get('sort') ?? this.spec.sort;
  }

  /** The conditions for the records, by parameter of the API. */
  get filter() {
    const given = this.spec.filters.map(name => [name, this.#query.get(name)]);
    return Object.fromEntries(given.filter(([, value]) => value));
  }

  /** The parameters of the API, but for those of a page. */
  get #parameters() {
    return {...this.filter, sort: this.#sort};
  }

  get #request() {
    return JSON.stringify([this.#parameters, this.#query.get('cursor'), this.#page]);
  }

  /** Shows what the query of the URL says. Reads if it says something new, or `again`.
      @param {URLSearchParams} query */
  show(query, again = false) {
    const former = this.#request;
    this.#query = query;
    if (this.isFirst) this.#cursors.clear();
    this.#cursors.set(this.#page, query.get('cursor'));
    this.table.sorted(this.#sort);
    if (again || former !== this.#request) this.poll.now();
    this.table.mark(query.get('open'));
  }

  /** @param {string} field */
  #sortBy(field) {
    views.amend({sort: this.#sort === `-${field}` ? field : `-${field}`, page: null, cursor: null});
  }

  #back() {
    const page = this.#page - 1;
    // A link to a page does not have the cursors of the pages before.
    const known = page > 1 && this.#cursors.has(page);
    views.amend({page: known ? page : null, cursor: known ? this.#cursors.get(page) : null});
  }

  async #read() {
    const {id} = this.spec;
    this.#missed = false;
    await shown(`${id}-problem`, async () => {
      const request = this.#request;
      const page = await this.#ask();
      if (request !== this.#request) return;
      this.#readAt = Date.now() / 1000;
      this.#next = page.next_cursor ?? null;
      this.#draw(page);
      this.dispatchEvent(new CustomEvent('read', {detail: page}));
    });
  }

  async #ask() {
    const {id, path} = this.spec;
    try {
      return await this.api.poll(path, {...this.#parameters, limit: PAGE, cursor: this.#query.get('cursor')});
    } catch (error) {
      this.#missed = error instanceof Unreachable;
      if (error instanceof Unreachable && this.#readAt) complain(byId(`${id}-problem`), `${error.message} The list is of ${timeOfDay(this.#readAt)}.`);
      throw error;
    }
  }

  /** @param {Data} page */
  #draw(page) {
    const {id, records: name} = this.spec;
    const records = page[name], first = (this.#page - 1) * PAGE + 1;
    const range = `${count(first)} to ${count(first + records.length - 1)}`;
    const none = Object.values(this.#parameters).some(Boolean) ? 'no matches' : 'none';
    write(`${id}-range`, !records.length ? none : page.total === undefined ? range : `${range} of ${count(page.total)}`);
    this.table.draw(records);
    byId(`${id}-previous`).disabled = this.isFirst;
    byId(`${id}-next`).disabled = !this.#next;
    show(`${id}-pages`, !this.isFirst || this.#next !== null);
  }

  async #export() {
    const {id, view, path, records, most} = this.spec;
    await attempt(byId(`${id}-export`), byId(`${id}-problem`), () =>
      save(this.api, view, path, records, this.#parameters, most));
  }

  /** @param {Element} place */
  #build(place) {
    const {id, title} = this.spec;
    const button = (/** @type {string} */ name, /** @type {string} */ text) => element('button', {id: `${id}-${name}`, type: 'button', class: 'quiet', text});
    place.setAttribute('aria-labelledby', `${id}-title`);
    place.append(
      element('h2', {}, element('span', {id: `${id}-title`, text: title}), element('small', {id: `${id}-range`, role: 'status'}),
        element('span', {class: 'actions'}, button('export', 'Export CSV'))),
      element('p', {id: `${id}-problem`, class: 'problem', role: 'alert', hidden: true}),
      this.table.place,
      element('p', {class: 'pages'},
        element('span', {id: `${id}-pages`, class: 'pages', hidden: true},
          button('previous', 'Previous'), button('next', 'Next')),
        element('span', {id: `${id}-age`, class: 'note'}), button('refresh', 'Refresh')));
  }
}
