// The state of the parts of the gateway, and its faults.

import {Refused, Unreachable} from './api.js';
import {dependenciesPanel} from './dependencies.js';
import {byId, element, stateRow} from './elements.js';
import {count, duration, faulty, moment, words} from './format.js';
import {ListView} from './listview.js';
import {Poll} from './poll.js';
import {panel} from './section.js';
import {link} from './views.js';

const SECONDS = 10, MOST_FAULTS = 5;

/** The view of all faults. */
export const faults = api => new ListView(api, {
  before: [dependenciesPanel(), panel('parts', 'Parts of the gateway', [element('ul', {id: 'health-states', class: 'states'})])],
  view: 'health', heading: 'Health', id: 'fault-list', title: 'Faults', path: '/system/faults', records: 'faults', seconds: SECONDS,
  key: ({kind, object}) => `${kind} ${object}`,
  fields: [{name: 'kind', label: 'Kind', options: ['shaper', 'ifb', 'host_route', 'delegated_prefix', 'steering', 'pool', 'vlan']}, {name: 'object', label: 'Object'}],
  columns: [
    {field: 'kind', title: 'Kind', show: ({kind}) => words(kind)}, {field: 'object', title: 'Object'},
    {field: 'session_id', title: 'Session', look: 'number', show: ({session_id: id}) => (id === null ? '' : element('a', {href: link('subscribers', {search: id, open: id}), text: id}))},
    {field: 'reason', title: 'Reason', look: 'text'},
    {field: 'since', title: 'Since', look: 'wide', show: ({since}) => moment(since)},
  ],
});

export class Health {
  constructor(api) {
    this.api = api;
    new Poll(SECONDS, () => this.#read(), ['overview', 'health']);
  }

  async #read() {
    const health = this.api.poll('/system/health');
    const rows = await Promise.all([
      this.#row('API', async () => {
        const began = performance.now();
        const {version} = await this.api.poll('/system/version');
        return [true, `responds in ${Math.round(performance.now() - began)} ms, version ${version}`];
      }),
      this.#row('Core daemon', async () => [true, `up for ${duration((await health).uptime_seconds)}`]),
      this.#row('Session sources', async () => sources(await health)),
      this.#row('CGNAT', async () => {
        const stats = await this.api.poll('/cgnat/stats');
        return [true, `${count(stats.vrf_steered_sessions)} steered, ${count(stats.public_ip_sessions)} public`];
      }),
      this.#row('Demux', async () => {
        const {rate_limited_total: refused} = await this.api.poll('/demux/state', {limit: 1});
        return [true, `${refused ? count(refused) : 'no'} VLANs refused`];
      }),
      this.#row('Webhooks', async () => {
        const {count: number} = await this.api.poll('/webhooks');
        return [true, number ? `${count(number)} registered` : 'none registered'];
      }),
      this.#row('Data plane', async () => {
        const {faults, total} = await this.api.poll('/system/faults', {limit: MOST_FAULTS});
        if (!total) return [true, 'no faults'];
        const more = total > faults.length ? `The oldest ${faults.length}:` : '';
        return [false, total === 1 ? '1 fault' : `${count(total)} faults`, more, faults.map(fault => this.#fault(fault))];
      }),
    ]);
    byId('health').replaceChildren(...rows.flat());
    byId('health-states').replaceChildren(...rows.flat().map(row => row.cloneNode(true)));
  }

  /** The row of a part, from its state, and rows below it. */
  async #row(name, read) {
    try {
      const [well, how, more, below = []] = await read();
      return [stateRow(name, well, how, more), ...below];
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
      return [stateRow(name, false, error.message)];
    }
  }

  #fault({kind, object, session_id: session, reason, since}) {
    const age = `for ${duration(this.api.now() - since)}`;
    return stateRow(faulty(kind, object), false, age, session === null ? reason : `Session ${session}: ${reason}`);
  }
}

function sources({stale_sessions: stale, unavailable_sources: silent}) {
  const how = silent.length ? `${silent.join(', ')} ${silent.length === 1 ? 'does' : 'do'} not reply` : 'all reply';
  const more = stale ? `${count(stale)} stale ${stale === 1 ? 'session' : 'sessions'}: online when the source last replied.` : '';
  return [!silent.length && !stale, how, more];
}
