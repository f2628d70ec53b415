// What an admin does to all sessions that match the filters of the list: a dry run, a confirmation, a job.

import {ask, attempt} from './dialogs.js';
import {byId, element, write} from './elements.js';
import {ID, conditions, count, sessions, subscriber} from './format.js';
import {askRates} from './rates.js';
import {documentOf, field as schema} from './schema.js';
import {ADMIN, button, field, textInput} from './section.js';
import {toast} from './toasts.js';
import * as views from './views.js';

// Sessions that the confirmation lists.
const FIRST = 10;

export class Bulk {
  /** `list` is the Listing of sessions. */
  constructor(api, list) {
    this.api = api;
    this.list = list;
    this.buttons = [
      button('bulk-rate', 'Change rates of all…', 'quiet'), button('bulk-disconnect', 'Disconnect all…', 'danger'),
    ];
    byId('list-problem').before(element('div', {class: 'bulk', ...ADMIN},
      element('p', {id: 'bulk-match', class: 'note'}), element('p', {class: 'actions'}, ...this.buttons)));
    const speed = field('Sessions per second, optional', textInput('bulk-speed', {type: 'number', step: 1, 'aria-describedby': 'bulk-speed-help'}));
    speed.append(element('p', {id: 'bulk-speed-help', class: 'note'}));
    byId('bulk-first').after(speed);
    byId('bulk-rate').addEventListener('click', () => this.#askRates());
    byId('bulk-disconnect').addEventListener('click', () => this.#askDisconnect());
    for (const one of this.buttons) one.setAttribute('aria-describedby', 'bulk-match');
    list.addEventListener('read', ({detail}) => this.#draw(detail.total));
  }

  #draw(total) {
    const {search} = this.list.filter, filtered = Object.keys(this.list.filter).length > 0, isUnclear = ID.test(search);
    for (const one of this.buttons) one.disabled = !filtered || !total || isUnclear;
    const matches = `${sessions(total)} match${total === 1 ? 'es' : ''}.`;
    write('bulk-match', !filtered ? 'To act on many sessions, search or choose a type first.' : !isUnclear ? matches
      : `${matches} ${search} may be a session id, a VLAN id or a part of a name. To act on all, search for id:${search}, user:${search} or an interface.`);
  }

  #askRates() {
    const {filter} = this.list;
    askRates({
      title: 'Change rates of all sessions that match', help: 'Nothing changes before you confirm.', button: 'Continue',
    }, async change => {
      const preview = await this.#preview('rate', {filter, ...change});
      return () => this.#confirm('rate', {filter, ...change}, ...preview);
    });
  }

  #askDisconnect() {
    const {filter} = this.list;
    attempt(byId('bulk-disconnect'), byId('list-problem'), async () => {
      this.#confirm('disconnect', {filter}, ...await this.#preview('disconnect', {filter}));
    });
  }

  /** The response to a dry run, and the OpenAPI document. */
  #preview(action, body) {
    return Promise.all([
      this.api.post(`/subscribers/${action}`, {...body, dry_run: true}), documentOf(this.api),
    ]);
  }

  /** Asks for the number of sessions: a click alone must not act on many. */
  #confirm(action, body, {count: number, sessions: found}, openapi) {
    const {minimum: min, maximum: max, default: usual} = schema(openapi, 'DisconnectJob', 'per_second');
    if (!number) {
      toast('No session matches now.');
      return;
    }
    const verb = action === 'rate' ? 'Change rates of' : 'Disconnect';
    write('bulk-title', `${verb} ${sessions(number)}?`);
    write('bulk-text', `All with ${conditions(body.filter)} when the job starts. The first of them now:`);
    byId('bulk-first').replaceChildren(...found.slice(0, FIRST).map(session => element('li', {text: line(session)})));
    write('bulk-ask', `Enter ${number} to confirm`);
    write('bulk-button', verb === 'Disconnect' ? `${verb} all` : 'Change all rates');
    const answer = byId('bulk-count');
    answer.value = '';
    Object.assign(answer, {pattern: String(number), title: `${number}, the number of sessions`});
    const speed = byId('bulk-speed');
    Object.assign(speed, {min, max, value: ''});
    write('bulk-speed-help', `${count(min)} to ${count(max)}; ${count(usual)} if empty.`);
    ask('bulk-dialog', async () => {
      const job = await this.api.post(`/subscribers/${action}`, {...body, ...(speed.value && {per_second: Number(speed.value)})});
      return () => views.amend({job: job.id});
    });
  }
}

const line = session => `${session.id}, ${subscriber(session)}`;
