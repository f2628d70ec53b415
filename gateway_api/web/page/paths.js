// The running configuration: the hostname, the tree, the paths to choose from, and help for the chosen one.

import {byId, element, write} from './elements.js';
import {Refused, Unreachable} from './api.js';
import {leaves} from './leaves.js';
import {Poll} from './poll.js';
import {Schema} from './schema.js';
import {Tree} from './tree.js';

const SECONDS = 60, MOST = 400;
const MASK = '********';

export class Paths {
  #running = null;
  #values = new Map();
  #chosen = null;
  // Not before the view is shown: the schema is large.
  #isOffered = false;

  constructor(api) {
    this.api = api;
    this.schema = new Schema(api);
    this.tree = new Tree(byId('tree'));
    this.poll = new Poll(SECONDS, () => this.#read());
    byId('stage-path').addEventListener('input', () => this.#hint());
  }

  now() {
    this.poll.now();
  }

  /** Puts a path of the URL into the form, which offers all paths. */
  choose(path) {
    this.#chosen = path;
    if (path) this.#fill();
    this.#offer();
  }

  async #read() {
    try {
      const running = await this.api.get('/system/config');
      this.#running = running;
      this.#values = new Map(leaves(running));
      if (running.system.hostname) write('hostname', running.system.hostname);
      this.tree.show(running);
    } catch (error) {
      // Optional: an operator can still type any path.
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    }
    if (this.#isOffered) this.#offer();
    if (this.#chosen && byId('stage-path').value !== this.#chosen) this.#fill();
    else await this.#hint();
  }

  #fill() {
    const path = this.#chosen, value = this.#values.get(path);
    if (value === undefined) return;
    this.tree.reveal(path);
    byId('stage-path').value = path;
    byId('stage-value').value = value === null || value === MASK ? '' : typeof value === 'string' ? value : JSON.stringify(value);
    this.#chosen = null;
    this.#hint();
    if (this.api.isAdmin) byId('stage-value').focus();
  }

  async #offer() {
    this.#isOffered = true;
    let paths = [...this.#values.keys()];
    try {
      if (this.#running) paths = await this.schema.paths(this.#running);
    } catch (error) {
      // Optional: those of the running configuration are known.
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    }
    byId('paths').replaceChildren(...paths.slice(0, MOST).map(value => element('option', {value})));
  }

  async #hint() {
    const path = byId('stage-path').value;
    write('stage-runs', this.#values.has(path) ? `Running: ${JSON.stringify(this.#values.get(path))}` : 'For example qos.default_down');
    let help = null;
    try {
      if (path) help = await this.schema.help(path);
    } catch (error) {
      // Optional as well.
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    }
    if (path !== byId('stage-path').value) return;
    write('stage-help', help?.meaning ?? '');
    write('stage-kind', help?.kind ?? '');
  }
}
