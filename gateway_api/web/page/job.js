// Work on many sessions that the core does by itself: how far it is, and the button that cancels it.

import {Refused} from './api.js';
import {attempt} from './dialogs.js';
import {byId, element, show, write} from './elements.js';
import {drawFields} from './fields.js';
import {redraw} from './focus.js';
import {conditions, count, sessions} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {ADMIN, button, panel} from './section.js';
import * as views from './views.js';

const SECONDS = 1;
/** The level and the text of each state. */
export const STATES = {
  running: ['idle', 'Running'],
  done: ['good', 'Done'],
  cancelled: ['idle', 'Cancelled: it takes no further session'],
  interrupted: ['bad', 'Interrupted: the core restarted, and the job does not continue'],
};

/** What a job does, such as "disconnect 120 sessions". */
export const work = ({kind, total}) => `${kind === 'rate' ? 'change rates of' : 'disconnect'} ${sessions(total)}`;

/** The sessions that are behind a job. */
export const taken = ({done, gone, failed}) => done + gone + failed;

/** Emits `ended` when the job that is shown has ended. */
export class Job extends EventTarget {
  #id = null;
  #ended = false;

  /** Builds the panel after `neighbour`. */
  constructor(api, neighbour) {
    super();
    this.api = api;
    this.bar = element('progress', {'aria-labelledby': 'job-title'});
    this.fields = element('dl', {class: 'fields'});
    this.errors = element('ol', {class: 'first', 'aria-label': 'First failures'});
    neighbour.after(panel('job', 'Job', [
      element('p', {id: 'job-state', class: 'state', role: 'status'}), this.bar, this.fields, this.errors,
      element('p', {class: 'actions'},
        element('span', ADMIN, button('job-cancel', 'Cancel the job')),
        button('job-close', 'Close', 'quiet closes'), element('a', {href: views.link('jobs'), text: 'All jobs'})),
    ], {id: 'job', hidden: true}));
    byId('job-title').tabIndex = -1;
    byId('job-cancel').addEventListener('click', () => this.#cancel());
    byId('job-close').addEventListener('click', () => views.amend({job: null}));
    this.poll = new Poll(SECONDS, () => this.#read(), ['subscribers']);
  }

  /** Shows the job with an id, if it is not shown already; null hides it. */
  open(id) {
    if (id === this.#id) return;
    this.#id = id;
    this.#ended = false;
    show('job', id !== null);
    if (id === null) return;
    write('job-title', `Job ${id}`);
    write('job-note', '');
    this.#state('idle', 'Loading');
    this.bar.removeAttribute('value');
    for (const list of [this.fields, this.errors]) list.replaceChildren();
    byId('job-title').focus();
    this.poll.now();
  }

  async #read() {
    const id = this.#id;
    if (id === null || this.#ended) return;
    await shown('job-problem', async () => {
      try {
        const job = await this.api.poll(`/subscribers/jobs/${id}`);
        if (id === this.#id) this.#draw(job);
      } catch (error) {
        if (error instanceof Refused && error.status === 404 && id === this.#id) this.#ended = true;
        throw error;
      }
    });
  }

  async #cancel() {
    const id = this.#id;
    await attempt(byId('job'), byId('job-problem'), async () => {
      const {data} = await this.api.ask('DELETE', `/subscribers/jobs/${id}`);
      if (id === this.#id) this.#draw(data);
    });
  }

  #draw(job) {
    const {id, state, filter, author, total, done, gone, failed, errors} = job;
    const [level, text] = STATES[state];
    write('job-title', `Job ${id}: ${work(job)}`);
    write('job-note', [conditions(filter), author && `by ${author}`].filter(Boolean).join(', '));
    this.#state(failed ? 'bad' : level, text, state === 'running');
    this.bar.max = Math.max(1, total);
    this.bar.value = total ? taken(job) : 1;
    const fields = {Done: done, 'Ended before': gone, Failed: failed, Left: total - taken(job)};
    drawFields(this.fields, Object.entries(fields).map(([name, number]) => ({name, text: count(number)})));
    redraw(this.errors, errors.map(({session_id: session, message}) => element('li', {text: `Session ${session}: ${message}`})));
    if (state === 'running' || this.#ended) return;
    this.#ended = true;
    this.dispatchEvent(new Event('ended'));
  }

  #state(level, text, running = false) {
    byId('job-state').className = `state ${level}`;
    write('job-state', text);
    byId('job-cancel').disabled = !running;
  }
}
