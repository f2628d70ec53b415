// The candidate: edit, compare, commit, discard.

import {COMMIT_TIMEOUT, POLL, Refused} from './api.js';
import {Archive} from './archive.js';
import {ask, attempt, confirm} from './dialogs.js';
import {byId, element, show, write} from './elements.js';
import {Confirmation} from './confirmation.js';
import {redraw} from './focus.js';
import {count} from './format.js';
import {shown} from './panel.js';
import {Paths} from './paths.js';
import {Poll} from './poll.js';
import {button, difference, panel, viewSection} from './section.js';
import {toast} from './toasts.js';

const SECONDS = 10;

export class Configuration {
  #etag = null;
  #impact = null;

  constructor(api) {
    this.api = api;
    this.confirmation = new Confirmation(api, text => this.#tell(text));
    this.archive = new Archive(api);
    this.paths = new Paths(api, (action, body) => this.#stage(action, body));
    viewSection('configuration', 'Configuration', element('div', {class: 'pair'}, panel('waiting', 'Candidate', [
      element('p', {id: 'configuration-state', role: 'status', class: 'outcome'}),
      element('p', {id: 'waiting-none', class: 'note', text: 'The candidate has no changes.'}),
      element('p', {id: 'waiting-hidden', class: 'note', hidden: true, text: 'Only an admin can see the candidate.'}),
      difference('diff', {'aria-label': 'Changes in the candidate'}),
      element('p', {id: 'waiting-actions', class: 'actions', hidden: true}, button('commit', 'Commit…'), button('discard', 'Discard…', 'danger')),
      this.confirmation.place,
    ]), this.paths.form), this.archive.panel, this.paths.tree);
    this.archive.addEventListener('rollback', ({detail}) => this.#askRollBack(detail));
    // In all views: the navigation shows the number of changed lines.
    this.poll = new Poll(SECONDS, () => this.#read());
    byId('commit').addEventListener('click', () => this.#askCommit());
    byId('discard').addEventListener('click', () => this.#askDiscard());
  }

  /** Shows the path and the difference that the query of the URL names. */
  show(query) {
    this.paths.choose(query.get('path'));
    this.archive.show(query);
  }

  async #read() {
    show('waiting-hidden', !this.api.isAdmin);
    if (!this.api.isAdmin) {
      this.#draw('');
      this.confirmation.await(null);
      show('waiting-none', false);
      return;
    }
    await shown('waiting-problem', async () => {
      const {data, etag} = await this.api.ask('GET', '/system/config/compare', {headers: POLL});
      this.#etag = etag;
      this.#impact = data.impact;
      this.#draw(data.diff);
      this.confirmation.await(data.confirm_deadline);
    });
  }

  #draw(diff) {
    const lines = diff.split('\n').filter(Boolean);
    const changed = lines.filter(line => /^[+-]/.test(line)).length;
    show('waiting-badge', changed > 0);
    byId('waiting-badge').replaceChildren(String(changed), element('span', {class: 'unseen', text: ' changed lines in the candidate'}));
    write('waiting-note', changed ? `${changed} lines` : '');
    show('waiting-none', !changed);
    show('diff', changed > 0);
    show('waiting-actions', changed > 0);
    redraw(byId('diff'), lines.map(line =>
      element(line.startsWith('-') ? 'del' : line.startsWith('+') ? 'ins' : 'span', {text: line})));
  }

  async #stage(action, body) {
    await attempt(byId('stage'), byId('stage-problem'), async () => {
      this.#tell(`Staged ${await this.#edit({op: action, ...body})}.`);
      byId('stage-value').value = '';
      byId('stage-path').focus();
      await this.poll.now();
    });
  }

  /** Stages one operation. Returns its path, with the keys of items in place of indexes. */
  async #edit(operation) {
    try {
      const {paths: [path]} = await this.api.post('/system/config/edit', {operations: [operation]});
      return path;
    } catch (error) {
      // The form has only one operation: its number says nothing to the user.
      if (error instanceof Refused) error.message = error.message.replaceAll(/\boperations\.0(\.|: )/g, '');
      throw error;
    }
  }

  /** For the moment at which the dialog opens: the API refuses the request if the candidate has changed since. */
  get #asSeen() {
    return {headers: {'If-Match': this.#etag}, timeout: COMMIT_TIMEOUT};
  }

  #askCommit() {
    write('commit-text', `${byId('waiting-note').textContent} of the diff take effect at once.`);
    byId('commit-comment').value = '';
    const asSeen = this.#asSeen;
    let most = this.#warn();
    ask('commit-dialog', async () => {
      const window = byId('commit-window').value;
      const body = {
        comment: byId('commit-comment').value || null,
        confirm_seconds: window ? Number(window) : null,
        max_sessions_dropped: most,
      };
      let done;
      try {
        done = await this.#settle('/system/config/commit', body, asSeen);
      } catch (error) {
        // More sessions may end by now: the next attempt is for the new number.
        most = this.#warn();
        throw error;
      }
      return () => {
        this.#tell(`${done.message}.`);
        this.confirmation.await(done.confirm_deadline);
        byId('configuration-heading').focus();
      };
    });
  }

  /** Says what a commit does to services and sessions. Returns how many sessions end, null if that is unknown. */
  #warn() {
    write('commit-services', this.#impact ? servicesText(this.#impact.services) : '');
    write('commit-sessions', this.#impact ? sessionsText(this.#impact.sessions_dropped) : 'What this does to sessions is unknown.');
    return this.#impact?.sessions_dropped ?? null;
  }

  #askDiscard() {
    const asSeen = this.#asSeen;
    confirm({
      title: 'Discard all changes in the candidate?', button: 'Discard',
      text: 'This also removes the changes of other users. The running configuration stays as it is.',
    }, async () => {
      await this.#settle('/system/config/discard', undefined, asSeen);
      return () => {
        this.#tell('Discarded.');
        byId('configuration-heading').focus();
      };
    });
  }

  async #askRollBack(revision) {
    // The archive may be shown before the candidate has been read.
    if (!this.#etag) await this.#read();
    if (!this.#etag) return;
    const asSeen = this.#asSeen;
    confirm({
      title: `Roll back to revision ${revision}?`, button: 'Roll back',
      text: 'This copies the revision to the candidate, in place of its changes. Nothing runs before the commit.',
    }, async () => {
      const {message} = await this.#settle('/system/config/rollback', {revision}, asSeen);
      return () => {
        this.#tell(`${message}.`);
        byId('configuration-heading').focus();
      };
    });
  }

  async #settle(path, body, asSeen) {
    try {
      return await this.api.post(path, body, asSeen);
    } finally {
      // Also after an error: another user may have changed the candidate.
      await this.poll.now();
      this.archive.now();
      this.paths.now();
    }
  }

  #tell(text) {
    write('configuration-state', text);
    toast(text);
  }
}

const servicesText = services => services.length
  ? `${services.map(({name, action}) => `${name} ${action}s`).join(', ')}.`
  : 'No service reloads or restarts.';
const sessionsText = dropped => dropped ? `${count(dropped)} ${dropped === 1 ? 'session ends' : 'sessions end'}.` : 'No session ends.';
