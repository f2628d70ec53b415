// Webhooks, and the deliveries to the open one.

import {attempt, confirm} from './dialogs.js';
import {byId, element, show, write} from './elements.js';
import {redraw} from './focus.js';
import {count, moment, scaledTime, words} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {field as schema, whenRead} from './schema.js';
import {ADMIN, button, field, form, panel, textInput, viewSection} from './section.js';
import {Table} from './table.js';
import {toast} from './toasts.js';
import * as views from './views.js';

const SECONDS = 5;

export class Webhooks {
  #open = null;

  constructor(api) {
    this.api = api;
    this.table = new Table({id: 'webhook-list', label: 'Webhooks', columns: [
      {field: 'url', title: 'URL', look: 'url', show: ({id, url}) => element('button', {type: 'button', class: 'link', text: url, onclick: () => views.amend({open: id})})},
      {field: 'events', title: 'Events', look: 'wide', show: ({events}) => events.join(', ')},
      {field: 'paused_until', title: 'State', look: 'state-of', show: webhook => stateOf(webhook)},
      {field: 'origin', title: 'Origin', look: 'wide'},
    ]});
    this.deliveries = new Table({id: 'delivery-list', label: 'Deliveries', key: ({message_id: id, attempt}) => `${id} ${attempt}`, columns: [
      {field: 'started_at', title: 'Time', look: 'time', show: ({started_at: at}) => (at ? moment(at) : '')},
      {field: 'event', title: 'Event'}, {field: 'attempt', title: 'Attempt', look: 'number wide'}, {field: 'result', title: 'Result'},
      {field: 'status', title: 'Status', look: 'number', show: ({status}) => String(status ?? '')},
      {field: 'error', title: 'Reason', look: 'text wide', show: ({error}) => words(error ?? '')},
      {field: 'duration', title: 'Took', look: 'number wide', show: ({duration}) => (duration === null ? '' : scaledTime(duration))},
      {field: 'next_attempt_at', title: 'Next attempt', look: 'wide', show: ({next_attempt_at: at}) => (at ? moment(at) : '')},
    ]});
    const kept = element('p', {class: 'note', text: 'Registrations are in memory: after a stop of the API, register again, or declare them in the configuration.'});
    const actions = element('p', {class: 'actions'}, button('webhook-test', 'Send a test', '', ADMIN),
      button('webhook-delete', 'Delete…', 'danger', ADMIN), button('webhook-close', 'Close', 'quiet closes'));
    viewSection('webhooks', 'Webhooks', panel('webhooks', 'Registrations', [this.table.place, kept]),
      panel('deliveries', 'Deliveries', [actions, this.deliveries.place], {id: 'deliveries', hidden: true}),
      panel('new-webhook', 'Register a webhook', [this.#form()], ADMIN));
    this.poll = new Poll(SECONDS, () => this.#read(), ['webhooks']);
    byId('webhook-test').addEventListener('click', () => this.#test());
    byId('webhook-delete').addEventListener('click', () => this.#askDelete());
    byId('webhook-close').addEventListener('click', () => views.amend({open: null}));
  }

  #form() {
    const events = element('fieldset');
    whenRead(this.api, 'webhooks', openapi => {
      // The example of the document has the events that a client gets by default.
      const {items, examples: [usual]} = schema(openapi, 'WebhookRegistration', 'events');
      redraw(events, [element('legend', {text: 'Events'}), ...items.enum.map(value =>
        element('label', {}, element('input', {value, type: 'checkbox', checked: usual.includes(value)}), ` ${value}`))]);
    }, 'new-webhook-problem');
    return form('add-webhook', [
      field('URL', textInput('new-url', {type: 'url', required: true, placeholder: 'https://noc.example/hook'})),
      events,
      field('Secret, optional', textInput('new-secret', {type: 'password', placeholder: 'whsec_…'})),
    ], 'Register', () => this.#add());
  }

  show(query) {
    const open = query.get('open');
    if (open !== this.#open) {
      this.deliveries.draw([]);
      write('deliveries-note', '');
    }
    this.#open = open;
    this.table.mark(open);
    show('deliveries', open !== null);
    this.poll.now();
  }

  async #read() {
    await shown('webhooks-problem', async () => {
      const {webhooks} = await this.api.poll('/webhooks');
      write('webhooks-note', count(webhooks.length));
      this.table.draw(webhooks);
      const open = webhooks.find(({id}) => id === this.#open);
      // A webhook that was deleted keeps no live buttons.
      for (const id of ['webhook-test', 'webhook-delete']) byId(id).disabled = !open;
      if (open) write('deliveries-note', open.url);
    });
    const open = this.#open;
    if (open === null) return;
    await shown('deliveries-problem', async () => {
      const {deliveries} = await this.api.poll(`/webhooks/${encodeURIComponent(open)}/deliveries`);
      if (open === this.#open) this.deliveries.draw(deliveries);
    });
  }

  async #add() {
    await attempt(byId('add-webhook'), byId('add-webhook-problem'), async () => {
      const events = [...byId('add-webhook').querySelectorAll(':checked')].map(({value}) => value);
      const secret = byId('new-secret').value;
      const {id} = await this.api.post('/webhooks', {url: byId('new-url').value, events, ...(secret && {secret})});
      byId('add-webhook').reset();
      toast(`Registered ${id}.`);
      views.amend({open: id});
    });
  }

  async #test() {
    await attempt(byId('deliveries'), byId('deliveries-problem'), async () => {
      toast(`${(await this.api.post(`/webhooks/${this.#open}/test`)).message}.`);
    });
    await this.poll.now();
  }

  #askDelete() {
    const id = this.#open;
    confirm({title: 'Delete this webhook?', text: `${byId('deliveries-note').textContent} gets no more events. Messages that wait are dropped.`, button: 'Delete'}, async () => {
      const {data} = await this.api.ask('DELETE', `/webhooks/${id}`);
      return () => {
        toast(data.message);
        views.amend({open: null});
      };
    });
  }
}

function stateOf({state, paused_until: until, failing_since: since}) {
  return [state, until && `until ${moment(until)}`, since && `failing since ${moment(since)}`].filter(Boolean).join(', ');
}
