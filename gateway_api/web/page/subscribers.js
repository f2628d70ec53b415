// The list of sessions, one page at a time, and the search in it.

import {byId, element, show, write} from './elements.js';
import {age, count, scaled} from './format.js';
import {shown} from './panel.js';

const PAGE = 50;
const COLUMNS = [
  ['id', 'Id', 'number'], ['username', 'Username', 'name'], ['type', 'Type', 'wide'], ['ip_address', 'IP address', ''],
  ['interface', 'Interface', 'wide'], ['rate_down', 'Down', 'number wide'], ['rate_up', 'Up', 'number wide'],
  ['started_at', 'Online for', 'number wide'],
];

export class Subscribers {
  #search = '';
  #sort = '-id';
  // The cursors of the pages up to the current one.
  #cursors = [null];
  #next = null;
  #rows = new Map();
  #reading = null;
  #changes = {came: 0, went: 0};

  /** `record` shows the chosen session. */
  constructor(api, stream, record) {
    this.api = api;
    this.record = record;
    record.addEventListener('read', ({detail}) => this.#renew(detail));
    byId('find').addEventListener('submit', event => {
      event.preventDefault();
      this.find(byId('find-text').value);
    });
    byId('find-type').addEventListener('change', () => this.#first());
    byId('list-next').addEventListener('click', () => this.#turn([...this.#cursors, this.#next]));
    byId('list-previous').addEventListener('click', () => this.#turn(this.#cursors.slice(0, -1)));
    byId('list-refresh').addEventListener('click', () => this.read());
    stream.addEventListener('events', ({detail}) => this.#take(detail));
    stream.addEventListener('gap', () => this.#reading && this.read());
    this.#drawHead();
  }

  /** Lists the sessions that match a text. If there is only one, opens its record. */
  async find(text) {
    byId('find-text').value = text;
    this.#search = text.trim();
    // Its buttons would act on a subscriber of the former search.
    this.record.dismiss();
    const page = await this.#first();
    if (text && page?.total === 1) this.record.open(page.sessions[0].id);
  }

  /** When the view is shown: reads the list, unless a search has read it. */
  appear() {
    if (!this.#reading) this.read();
  }

  #first() {
    return this.#turn([null]);
  }

  #turn(cursors) {
    this.#cursors = cursors;
    return this.read();
  }

  /** Reads and shows a page. Null after an error, or if a later call replaced this one. */
  async read() {
    // A second search may start before the first response: a late response must not replace a newer one.
    const reading = this.#reading = Symbol();
    let read = null;
    await shown('list-problem', async () => {
      const page = await this.api.get('/subscribers', {
        search: this.#search, type: byId('find-type').value, sort: this.#sort, limit: PAGE, cursor: this.#cursors.at(-1),
      });
      if (reading !== this.#reading) return;
      this.#next = page.next_cursor;
      this.#changes = {came: 0, went: 0};
      this.#draw(page);
      read = page;
    });
    return read;
  }

  #draw({sessions, total}) {
    const first = (this.#cursors.length - 1) * PAGE + 1;
    const range = `${count(first)} to ${count(first + sessions.length - 1)} of ${count(total)}`;
    write('list-range', sessions.length ? range : 'no matches');
    this.#rows = new Map(sessions.map(session => [session.id, this.#row(session)]));
    byId('list').tBodies[0].replaceChildren(...this.#rows.values());
    byId('list-previous').disabled = this.#cursors.length === 1;
    byId('list-next').disabled = !this.#next;
    this.#drawAge();
  }

  #row(session) {
    const cells = {
      id: String(session.id),
      username: element('button', {type: 'button', class: 'link', text: session.username, onclick: () => this.record.open(session.id)}),
      type: session.type,
      ip_address: session.ip_address ?? session.ipv6_address ?? '',
      interface: session.interface,
      rate_down: scaled(session.rate_down, 'bit/s'),
      rate_up: scaled(session.rate_up, 'bit/s'),
      started_at: age(session.started_at),
    };
    return element('tr', {}, ...COLUMNS.map(([field, , look]) => element('td', {class: look}, cells[field])));
  }

  /** Updates the rates in the row of a session. The row stays: a user may be about to click it. */
  #renew(session) {
    const row = this.#rows.get(session.id);
    if (!row) return;
    for (const field of ['rate_down', 'rate_up']) {
      row.cells[COLUMNS.findIndex(([name]) => name === field)].textContent = scaled(session[`${field}_bps`], 'bit/s');
    }
  }

  #drawHead() {
    byId('list').tHead.rows[0].replaceChildren(...COLUMNS.map(([field, title, look]) => {
      const down = this.#sort === `-${field}`, sorted = down || this.#sort === field;
      const button = element('button', {type: 'button', class: 'link', text: title, onclick: () => this.#sortBy(down ? field : `-${field}`, field)});
      return element('th', {scope: 'col', class: look, 'aria-sort': sorted ? (down ? 'descending' : 'ascending') : null}, button);
    }));
  }

  async #sortBy(sort, field) {
    this.#sort = sort;
    this.#drawHead();
    byId('list').tHead.rows[0].cells[COLUMNS.findIndex(([name]) => name === field)].firstChild.focus();
    await this.#first();
  }

  #take(events) {
    for (const {name, data} of events) {
      this.#changes[name === 'session_up' ? 'came' : 'went'] += 1;
      // Rows keep their place while the user points at them; an ended session is dimmed.
      if (name === 'session_down') this.#rows.get(data.id)?.classList.add('gone');
    }
    if (events.length) this.#drawAge();
  }

  #drawAge() {
    const {came, went} = this.#changes;
    show('list-refresh', came + went > 0);
    write('list-age', came + went ? `Since the last refresh: ${count(came)} started, ${count(went)} ended.` : '');
  }
}
