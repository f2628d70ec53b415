// The list of sessions, and the search in it.

import {Refused, Unreachable} from './api.js';
import {Bulk} from './bulk.js';
import {byId, element, show, write} from './elements.js';
import {choice} from './filters.js';
import {ID, count, duration, scaled} from './format.js';
import {Job} from './job.js';
import {Listing} from './listing.js';
import {DOWN, UP} from './messages.js';
import {SessionRecord} from './record.js';
import {field, folding, textInput, viewSection} from './section.js';
import * as views from './views.js';

// Seconds in which a username of the history still counts, as for a TARGET of gatewayctl.
const RECENT = 30 * 86_400;
// Milliseconds: at most so often new rows come by themselves, and so long a pointer must rest before.
const FOLLOWS = 3_000, RESTS = 5_000;
const rate = field => session => scaled(session[field], 'bit/s');
// One of IPv4 or IPv6, but no MAC address.
const ADDRESS = /^(?:\d+(?:\.\d+){3}|(?!(?:[\da-f]{1,2}:){5}[\da-f]{1,2}$)[\da-f]*:[\da-f:.]+)$/i;
const columns = api => [
  {field: 'id', title: 'Id', look: 'number'},
  {field: 'username', title: 'Username', look: 'name', fixed: true, show: session => opener(session)},
  {field: 'type', title: 'Type', look: 'wide'},
  {field: 'ip_address', title: 'IP address', show: session => session.ip_address ?? session.ipv6_address ?? ''},
  {field: 'mac_address', title: 'MAC address', look: 'wide'},
  {field: 'access_interface', title: 'VLAN', look: 'wide'},
  {field: 'interface', title: 'Interface', look: 'wide', extra: true},
  {field: 'ipv6_address', title: 'IPv6 address', look: 'wide', extra: true},
  {field: 'ipv6_prefix', title: 'IPv6 prefix', look: 'wide', extra: true},
  {field: 'source', title: 'Source', look: 'wide', extra: true},
  {field: 'rate_down', title: 'Down', look: 'number wide', show: rate('rate_down')},
  {field: 'rate_up', title: 'Up', look: 'number wide', show: rate('rate_up')},
  {field: 'started_at', title: 'Online for', look: 'number wide', show: session => duration(api.now() - session.started_at)},
];
// The oldest first: rows keep their places while others come and go.
const ORDER = 'id';

export class Subscribers {
  #search = null;
  // True until the first response to a search.
  #fresh = false;
  #changes = {came: 0, went: 0};
  #due = null;
  #pointed = -Infinity;

  constructor(api, stream) {
    this.api = api;
    this.type = choice(api, {id: 'find-type', view: 'subscribers', path: '/subscribers', name: 'type', titles: typeNames});
    const place = element('section', {class: 'panel'}), find = element('form', {id: 'find', class: 'find panel', role: 'search'},
      field('Find a subscriber', textInput('find-text', {type: 'search', maxlength: 256, 'aria-describedby': 'find-help', 'aria-keyshortcuts': '/'}), 'grow'),
      field('Type', this.type.input, 'folds'),
      element('button', {type: 'submit', text: 'Find'}),
      element('p', {id: 'find-help', class: 'note folds'}, 'Enter a session id, a part of a username, MAC or IP address, a prefix, an interface, a VLAN id or an accounting id. A number may be several of these: id:120 and user:120 say which. Leave it empty for all. The key ',
        element('kbd', {text: '/'}), ' leads here, ', element('kbd', {text: '?'}), ' shows all keys.'));
    viewSection('subscribers', 'Subscribers', find, element('div', {class: 'finding'}, place));
    this.list = new Listing(api, place, {
      id: 'list', view: 'subscribers', title: 'Sessions', path: '/subscribers', records: 'sessions', columns: columns(api),
      filters: ['search', 'type'], sort: ORDER, chooses: true,
    });
    byId('list-problem').after(element('p', {id: 'list-none', hidden: true}, 'No session now. ',
      element('a', {id: 'list-history', text: 'Look for it in the history'}), '.'),
    element('p', {id: 'list-namesake', class: 'note', role: 'status', hidden: true}));
    this.tell = folding(find);
    this.list.addEventListener('read', ({detail}) => this.#drawn(detail));
    this.job = new Job(api, find);
    this.record = new SessionRecord(api, stream, place);
    this.job.addEventListener('ended', () => this.list.poll.now());
    new Bulk(api, this.list);
    this.record.addEventListener('read', ({detail}) => this.#renew(detail));
    find.addEventListener('submit', event => {
      event.preventDefault();
      this.#find();
    });
    byId('list').addEventListener('pointermove', () => { this.#pointed = performance.now(); });
    this.type.input.addEventListener('change', () => this.#find());
    stream.addEventListener('events', ({detail}) => this.#take(detail));
    stream.addEventListener('gap', () => this.list.poll.now());
  }

  /** Shows what the query of the URL says. */
  show(query) {
    const search = query.get('search') ?? '', open = query.get('open'), job = query.get('job');
    byId('find-text').value = search;
    this.type.show(query.get('type') ?? '');
    this.tell(query.get('type') ? 1 : 0);
    this.job.open(ID.test(job) ? Number(job) : null);
    if (ID.test(open)) this.record.open(Number(open));
    // Its buttons would act on a subscriber of the former search.
    else this.record.dismiss();
    this.#fresh = !open && search !== this.#search;
    if (search !== this.#search) show('list-namesake', false);
    this.#search = search;
    this.list.show(query, this.#fresh);
  }

  #find() {
    // Also for the same text.
    this.#search = null;
    const {query} = views.place();
    views.go('subscribers', {
      search: byId('find-text').value.trim(), type: this.type.input.value, sort: query.get('sort'), job: query.get('job'),
    });
  }

  #drawn({sessions, total}) {
    this.#changes = {came: 0, went: 0};
    this.#drawAge();
    show('list-none', Boolean(this.#search) && total === 0);
    byId('list-history').href = views.link('history', {[ADDRESS.test(this.#search) ? 'ip_address' : 'search']: this.#search});
    if (this.#fresh && this.#search && total) this.#settle(this.#search, sessions, total);
    this.#fresh = false;
  }

  /** Opens the only session of a search. A number may be its id, and the username of an offline subscriber: then a note
      says so, and the user chooses. */
  async #settle(search, sessions, total) {
    const note = ID.test(search) && !sessions.some(({username}) => username === search) ? await this.#namesake(search) : [];
    if (search !== this.#search || views.place().query.get('open')) return;
    byId('list-namesake').replaceChildren(...note);
    show('list-namesake', note.length > 0);
    if (total === 1 && !note.length) views.amend({open: sessions[0].id}, {replace: true});
  }

  /** What to say of a recent subscriber with a number as username; nothing if there is none. */
  async #namesake(name) {
    try {
      const query = {username: name, since: Math.trunc(this.api.now()) - RECENT, limit: 1};
      if (!(await this.api.get('/subscribers/history', query)).sessions.length) return [];
      return [`${name} is also the username of a subscriber without a session now. `,
        element('a', {href: views.link('history', {search: `user:${name}`}), text: 'Look for it in the history'}), '.'];
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
      return [`${name} may also be a username, which the history cannot tell now: ${error.message}`];
    }
  }

  /** Updates the rates in the row of a session. The row stays: a user may be about to click it. */
  #renew(session) {
    for (const field of ['rate_down', 'rate_up']) {
      const cell = this.list.table.cell(session.id, field);
      if (cell) cell.textContent = scaled(session[`${field}_bps`], 'bit/s');
    }
  }

  #take(events) {
    for (const {name, data} of events) {
      this.#changes[name === UP ? 'came' : 'went'] += 1;
      if (name === DOWN) this.list.table.row(data.id)?.classList.add('gone');
    }
    if (!events.length) return;
    this.#drawAge();
    if (this.#changes.came && !this.#due) this.#due = setTimeout(() => this.#follow(), FOLLOWS);
  }

  /** Reads the sessions that have started. While a user points at a row or has turned pages, rows keep their place. */
  #follow() {
    this.#due = null;
    if (!this.list.isFirst) return;
    const pointed = performance.now() - this.#pointed < RESTS || byId('list').matches(':focus-within');
    if (pointed) this.#due = setTimeout(() => this.#follow(), FOLLOWS);
    else this.list.poll.now();
  }

  #drawAge() {
    const {came, went} = this.#changes;
    write('list-age', came + went ? `Since the last refresh: ${count(came)} started, ${count(went)} ended.` : '');
  }
}

/** The spelling of each type: `pppoe` is PPPoE. */
const typeNames = ({components: {schemas}}) => Object.fromEntries(schemas.SessionType.enum.map(name => [name.toLowerCase(), name]));

function opener({id, username}) {
  // A small screen breaks the line before the realm.
  const at = username.lastIndexOf('@'), parts = at < 0 ? [username] : [username.slice(0, at), element('wbr'), username.slice(at)];
  return element('button', {type: 'button', class: 'link', onclick: () => views.amend({open: id})}, ...parts);
}
