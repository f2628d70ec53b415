// The running configuration: the hostname, the tree, the paths to choose from, and help for the chosen one.

import {byId, element, write} from './elements.js';
import {RATE} from './format.js';
import {leaves} from './leaves.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {NONE, allPaths, documentOf, help, listKeys} from './schema.js';
import {ADMIN, button, field, form, panel, textInput} from './section.js';
import {drawTree, reveal} from './tree.js';

const SECONDS = 60, MOST = 400;
const MASK = '********', HINT = 'For example qos.default_down';

export class Paths {
  #running = null;
  #values = new Map();
  #chosen = null;
  // Not before the view is shown: the schema is large.
  #isOffered = false;

  /** `stage` is called with the name of an edit and its body. */
  constructor(api, stage) {
    this.api = api;
    this.tree = panel('tree', 'Running configuration', [element('div', {id: 'tree'})], {note: 'secrets are masked; a name leads to its edit'});
    this.poll = new Poll(SECONDS, () => this.#read());
    const path = textInput('stage-path', {list: 'paths', required: true, maxlength: 512, oninput: () => this.#hint(),
      'aria-describedby': 'stage-runs stage-help stage-kind stage-problem'});
    const value = textInput('stage-value', {'aria-describedby': 'stage-kind stage-problem'});
    const edit = form('stage', [
      field('Path', path), element('datalist', {id: 'paths'}), element('p', {id: 'stage-runs', class: 'note', text: HINT}),
      element('p', {id: 'stage-help', class: 'note', role: 'status'}), element('p', {id: 'stage-kind', class: 'note'}), field('Value', value),
    ], 'Set', () => stage('set', {path: path.value, value: value.value}));
    edit.lastChild.append(' ', button('stage-delete', 'Delete at this path', 'quiet', {
      onclick: () => path.reportValidity() && stage('delete', {path: path.value}),
    }));
    this.form = panel('edit', 'Edit the candidate', [edit], ADMIN);
  }

  now() {
    this.poll.now();
  }

  /** Puts a path of the URL into the form, which offers all paths. */
  async choose(path) {
    this.#chosen = path;
    if (!this.#isOffered) {
      this.#isOffered = true;
      await this.#draw();
    }
    if (this.#chosen) this.#fill();
    await this.#offer();
  }

  async #read() {
    // Optional: an operator can still type any path.
    await shown([], async () => {
      const running = await this.api.get('/system/config');
      this.#running = running;
      if (running.system.hostname) write('hostname', running.system.hostname);
      await this.#draw();
    });
    if (this.#isOffered) this.#offer();
    if (this.#chosen && byId('stage-path').value !== this.#chosen) this.#fill();
    else await this.#hint();
  }

  async #draw() {
    if (!this.#isOffered || !this.#running) return;
    const keys = await listKeys(this.api);
    this.#values = new Map(leaves(this.#running, keys));
    drawTree(byId('tree'), this.#running, keys);
  }

  #fill() {
    const path = this.#chosen, value = this.#values.get(path);
    if (value === undefined) return;
    reveal(byId('tree'), path);
    byId('stage-path').value = path;
    byId('stage-value').value = value === null || value === MASK ? '' : typeof value === 'string' ? value : JSON.stringify(value);
    this.#chosen = null;
    this.#hint();
    if (this.api.isAdmin) byId('stage-value').focus();
  }

  async #offer() {
    let paths = [...this.#values.keys()];
    // Optional: those of the running configuration are known.
    await shown([], async () => {
      if (this.#running) paths = allPaths(await documentOf(this.api), this.#running);
    });
    byId('paths').replaceChildren(...paths.slice(0, MOST).map(value => element('option', {value})));
  }

  async #hint() {
    const path = byId('stage-path').value;
    write('stage-runs', this.#values.has(path) ? `Running: ${JSON.stringify(this.#values.get(path))}` : HINT);
    let {meaning, kind, isRate} = NONE;
    // Optional as well.
    await shown([], async () => {
      if (path) ({meaning, kind, isRate} = help(await documentOf(this.api), path));
    });
    if (path !== byId('stage-path').value) return;
    write('stage-help', meaning);
    write('stage-kind', kind);
    Object.assign(byId('stage-value'), isRate ? RATE : {pattern: '.*', title: ''});
  }
}
