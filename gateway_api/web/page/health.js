// The health of the gateway: what it depends on, and its faults. One list, in two views, and the alarm at the top of the page.

import {Refused} from './api.js';
import {byId, element, show, stateRow, write} from './elements.js';
import {count, duration, faulty, moment, words} from './format.js';
import {ListView} from './listview.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {panel} from './section.js';
import {link} from './views.js';

const SECONDS = 10, MOST_FAULTS = 5;
// What is unused is neither well nor ill.
const LEVELS = {ok: 'good', unused: 'none', unknown: 'idle', degraded: 'idle', failed: 'bad'};
const ILL = ['degraded', 'failed'];

/** The view of all faults. */
export const faults = api => new ListView(api, {
  before: [panel('dependencies', 'Dependencies', [element('ul', {id: 'dependency-states', class: 'states'})])],
  view: 'health', heading: 'Health', id: 'fault-list', title: 'Faults', path: '/system/faults', records: 'faults', seconds: SECONDS,
  key: ({kind, object}) => `${kind} ${object}`,
  fields: [{name: 'kind', label: 'Kind', choice: true}, {name: 'object', label: 'Object'}],
  columns: [
    {field: 'kind', title: 'Kind', show: ({kind}) => words(kind)}, {field: 'object', title: 'Object'},
    {field: 'session_id', title: 'Session', look: 'number', show: ({session_id: id}) => (id === null ? '' : element('a', {href: link('subscribers', {search: id, open: id}), text: id}))},
    {field: 'reason', title: 'Reason', look: 'text'},
    {field: 'since', title: 'Since', look: 'wide', show: ({since}) => moment(since)},
  ],
});

/** The panel of the overview. */
export function health(api) {
  new Health(api);
  return panel('overview-health', 'Health', [element('ul', {id: 'overview-health', class: 'states brief'})]);
}

class Health {
  constructor(api) {
    this.api = api;
    // In all views: the alarm is in all of them.
    new Poll(SECONDS, () => shown(['overview-health-problem', 'dependencies-problem'], () => this.#read()));
  }

  async #read() {
    const [{state, dependencies}, health, faults] = await Promise.all([
      this.api.poll('/system/health/detail'), this.#of('/system/health'), this.#of('/system/faults', {limit: MOST_FAULTS}),
    ]);
    const rows = () => [
      ...dependencies.map(({name, state: one, message}) => stateRow(LEVELS[one], words(name), one, message)),
      ...(health.stale_sessions ? [staleRow(health.stale_sessions)] : []), faultsRow(faults),
    ];
    byId('overview-health').replaceChildren(...rows(), ...(faults.faults ?? []).map(fault => this.#fault(fault)));
    byId('dependency-states').replaceChildren(...rows());
    write('dependencies-note', [state, ...('version' in health
      ? [`version ${health.version}`, `core daemon up for ${duration(health.uptime_seconds)}`] : [])].join(', '));
    show('lab', dependencies.some(({name}) => name === 'lab'));
    this.#alarm(dependencies.filter(({state: one}) => ILL.includes(one)), faults.total ?? 0);
  }

  /** What the core tells, or its error: then its own row tells more. */
  async #of(path, query) {
    try {
      return await this.api.poll(path, query);
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401) throw error;
      return {error: error.message};
    }
  }

  #alarm(ill, faults) {
    const number = ill.length + faults, failed = faults || ill.some(({state}) => state === 'failed');
    const alarm = byId('alarm');
    alarm.classList.toggle('bad', Boolean(failed));
    if (number) write('alarm', `${count(number)} ${number === 1 ? 'problem' : 'problems'}`);
    alarm.title = ill.map(({name, state}) => `${words(name)} ${state}`).concat(faults ? `${count(faults)} faults` : []).join(', ');
    show('alarm', number > 0);
  }

  #fault({kind, object, session_id: session, reason, since}) {
    const age = `for ${duration(this.api.now() - since)}`;
    return stateRow('bad', faulty(kind, object), age, session === null ? reason : `Session ${session}: ${reason}`);
  }
}

const staleRow = stale => stateRow('idle', 'Stale sessions', count(stale), 'They were online when their source last replied.');

function faultsRow({error, total, faults}) {
  if (error) return stateRow('idle', 'Faults', 'unknown', error);
  if (!total) return stateRow('good', 'Faults', 'none', 'The core keeps the data plane as the sessions need it.');
  return stateRow('bad', 'Faults', count(total), total > faults.length ? `The oldest ${faults.length} are:` : '');
}
