// The archive: former configurations, the difference between any two, and the way back to one.

import {byId, element, show, write} from './elements.js';
import {moment} from './format.js';
import {leaves} from './leaves.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {listKeys} from './schema.js';
import {difference, field, offer, panel} from './section.js';
import {Table} from './table.js';
import * as views from './views.js';

const SECONDS = 30;
const RUNNING = 'running', CANDIDATE = 'candidate';

/** Emits `rollback`: its `detail` is the revision. */
export class Archive extends EventTarget {
  #compared = '';

  constructor(api) {
    super();
    this.api = api;
    this.poll = new Poll(SECONDS, () => this.#read(), ['configuration']);
    this.table = new Table({id: 'archive', label: 'Revisions', key: ({committed_at: at}) => at, columns: [
      {field: 'revision', title: 'Revision', look: 'number'}, {field: 'committed_at', title: 'Committed', show: ({committed_at: at}) => moment(at)},
      {field: 'author', title: 'By'}, {field: 'comment', title: 'Comment', look: 'text'},
      {field: 'actions', title: 'Actions', show: ({revision}) => this.#actions(revision)},
    ]});
    this.panel = panel('archive', 'Archive', [
      element('p', {id: 'archive-none', class: 'note', text: 'No commits yet.'}), this.table.place,
      element('form', {id: 'compare', class: 'find', 'aria-label': 'Difference of two configurations', onsubmit: event => this.#choose(event)},
        field('From', element('select', {id: 'compare-from'})), field('To', element('select', {id: 'compare-to'})),
        element('button', {type: 'submit', class: 'quiet', text: 'Show the difference'})),
      element('p', {id: 'revision-title', role: 'status', class: 'outcome'}),
      element('p', {id: 'revision-same', class: 'note', hidden: true, text: 'No difference. Secrets are masked, so they are not compared.'}),
      difference('revision-diff', {'aria-labelledby': 'revision-title'}),
    ], {note: 'newest first'});
  }

  #choose(event) {
    event.preventDefault();
    views.amend({from: byId('compare-from').value, to: byId('compare-to').value});
  }

  now() {
    this.#compared = '';
    this.poll.now();
  }

  /** Shows the difference that the query of the URL names. */
  async show(query) {
    this.wanted = {from: query.get('from'), to: query.get('to')};
    await this.#compare();
  }

  async #read() {
    await shown('archive-problem', async () => {
      const {revisions} = await this.api.poll('/system/config/archive');
      show('archive-none', !revisions.length);
      this.table.place.hidden = !revisions.length;
      this.table.draw(revisions);
      const names = [RUNNING, ...(this.api.isAdmin ? [CANDIDATE] : []), ...revisions.map(({revision}) => String(revision))];
      offer(byId('compare-from'), names, this.wanted?.from ?? '1', title);
      offer(byId('compare-to'), names, this.wanted?.to ?? RUNNING, title);
    });
    await this.#compare();
  }

  async #compare() {
    const {from, to} = this.wanted ?? {};
    show('revision-diff', Boolean(from && to));
    show('revision-same', false);
    if (!from || !to) return;
    const compared = `${from} ${to}`;
    for (const [id, name] of [['compare-from', from], ['compare-to', to]]) byId(id).value = name;
    if (compared === this.#compared) return;
    await shown('archive-problem', async () => {
      const [before, after] = await Promise.all([this.#values(from), this.#values(to)]);
      this.#compared = compared;
      const lines = changes(before, after);
      write('revision-title', `From ${from} to ${to}`);
      show('revision-same', !lines.length);
      byId('revision-diff').replaceChildren(...lines);
      show('revision-diff', lines.length > 0);
    });
  }

  async #values(name) {
    const keys = await listKeys(this.api);
    return new Map([...leaves(await this.#configuration(name), keys)].map(([path, value]) => [path, JSON.stringify(value)]));
  }

  async #configuration(name) {
    if (name === RUNNING) return this.api.get('/system/config');
    if (name === CANDIDATE) return this.api.get('/system/config/candidate');
    return (await this.api.get(`/system/config/archive/${encodeURIComponent(name)}`)).configuration;
  }

  #actions(revision) {
    const back = () => this.dispatchEvent(new CustomEvent('rollback', {detail: revision}));
    return element('span', {class: 'actions'},
      element('a', {href: views.link('configuration', {from: revision, to: RUNNING}), text: 'Difference', 'aria-label': `Difference from revision ${revision} to the running configuration`}),
      ...(this.api.isAdmin ? [element('button', {type: 'button', class: 'quiet', text: 'Roll back…', 'aria-label': `Roll back to revision ${revision}`, onclick: back})] : []));
  }
}

const title = name => (/^\d/.test(name) ? `Revision ${name}` : name);

/** Lines as those of the API's own comparison. */
function changes(before, after) {
  return [...new Set([...before.keys(), ...after.keys()])].sort().flatMap(path => {
    if (before.get(path) === after.get(path)) return [];
    return [
      ...(before.has(path) ? [element('del', {text: `- ${path} = ${before.get(path)}`})] : []),
      ...(after.has(path) ? [element('ins', {text: `+ ${path} = ${after.get(path)}`})] : []),
    ];
  });
}
