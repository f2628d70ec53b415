// The running configuration: the hostname, the paths to choose from, and their values.

import {byId, element, write} from './elements.js';
import {Refused, Unreachable} from './api.js';
import {Poll} from './poll.js';

const SECONDS = 60, MOST = 400;
const PLAIN = /^[A-Za-z_][A-Za-z0-9_-]*$/;
// The keys of list items: a path with a key needs no index.
const KEYS = ['username', 'address', 'name'];

export class Paths {
  #values = new Map();

  constructor(api) {
    this.api = api;
    this.poll = new Poll(SECONDS, () => this.#read());
    byId('stage-path').addEventListener('input', () => this.#hint());
  }

  now() {
    this.poll.now();
  }

  async #read() {
    try {
      const running = await this.api.get('/system/config');
      this.#values = new Map(leaves(running, []));
      if (running.system.hostname) write('hostname', running.system.hostname);
    } catch (error) {
      // Optional: an operator can still type any path.
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    }
    byId('paths').replaceChildren(...[...this.#values.keys()].slice(0, MOST).map(value => element('option', {value})));
    this.#hint();
  }

  #hint() {
    const path = byId('stage-path').value;
    write('stage-runs', this.#values.has(path) ? `Running: ${JSON.stringify(this.#values.get(path))}` : 'For example qos.default_down');
  }
}

function* leaves(value, path) {
  if (value === null || typeof value !== 'object' || (Array.isArray(value) && typeof value[0] !== 'object')) {
    yield [path.map(segment => (PLAIN.test(segment) ? segment : JSON.stringify(segment))).join('.'), value];
  } else if (Array.isArray(value)) {
    for (const item of value) {
      const key = KEYS.find(name => name in item);
      if (key) for (const [name, held] of Object.entries(item)) if (name !== key) yield* leaves(held, [...path, String(item[key]), name]);
    }
  } else {
    for (const [name, held] of Object.entries(value)) yield* leaves(held, [...path, name]);
  }
}
