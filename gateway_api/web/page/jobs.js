// All jobs: how far each is, and the button that cancels it.

import {attempt} from './dialogs.js';
import {byId, element, write} from './elements.js';
import {conditions, count, moment} from './format.js';
import {STATES, taken, work} from './job.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {panel, viewSection} from './section.js';
import {Table} from './table.js';
import {toast} from './toasts.js';
import {link} from './views.js';

const SECONDS = 2;

export class Jobs {
  constructor(api) {
    this.api = api;
    this.table = new Table({id: 'job-list', label: 'Jobs', columns: [
      {field: 'id', title: 'Job', show: ({id}) => element('a', {href: link('subscribers', {job: id}), text: `Job ${id}`})},
      {field: 'kind', title: 'Work', look: 'wide', show: job => work(job)},
      {field: 'filter', title: 'Which', look: 'text wide', show: ({filter}) => conditions(filter)},
      {field: 'state', title: 'State', show: job => stateOf(job)},
      {field: 'done', title: 'Progress', show: job => progress(job)},
      {field: 'failed', title: 'Failed', look: 'number wide', show: ({failed}) => count(failed)},
      {field: 'author', title: 'By', look: 'wide'},
      {field: 'started_at', title: 'Started', look: 'wide', show: ({started_at: at}) => moment(at)},
      {field: 'actions', title: 'Actions', show: job => this.#actions(job)},
    ]});
    viewSection('jobs', 'Jobs', panel('jobs', 'All jobs', [
      element('p', {class: 'note', text: 'Work on all sessions that match a search. The view Subscribers starts it.'}), this.table.place,
    ]));
    this.poll = new Poll(SECONDS, () => this.#read(), ['jobs']);
  }

  async #read() {
    await shown('jobs-problem', async () => {
      const {jobs} = await this.api.poll('/subscribers/jobs');
      write('jobs-note', count(jobs.length));
      this.table.draw(jobs);
    });
  }

  #actions({id, state}) {
    if (!this.api.isAdmin || state !== 'running') return '';
    return element('button', {type: 'button', class: 'quiet', text: 'Cancel', 'aria-label': `Cancel job ${id}`, onclick: () => this.#cancel(id)});
  }

  async #cancel(id) {
    await attempt(byId('job-list'), byId('jobs-problem'), async () => {
      await this.api.ask('DELETE', `/subscribers/jobs/${id}`);
      toast(`Cancelled job ${id}.`);
    });
    await this.poll.now();
  }
}

function stateOf({state, failed}) {
  const [level, text] = STATES[state];
  return element('span', {class: `state ${failed ? 'bad' : level}`, text: text.split(':')[0]});
}

const progress = job => element('span', {class: 'progress'},
  element('progress', {max: Math.max(1, job.total), value: job.total ? taken(job) : 1, 'aria-label': `Progress of job ${job.id}`}),
  ` ${count(taken(job))} of ${count(job.total)}`);
