// What happened to the subscriber of the open record, the newest first.

import {byId, element, show} from './elements.js';
import {redraw} from './focus.js';
import {moment} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';

const SECONDS = 10, MOST = 20;

export class Timeline {
  #id = null;

  constructor(api) {
    this.api = api;
    this.poll = new Poll(SECONDS, () => this.#read(), ['subscribers']);
  }

  /** Shows the timeline of a session's subscriber; null is for none. */
  open(id) {
    this.#id = id;
    this.#draw([]);
    this.poll.now();
  }

  async #read() {
    const id = this.#id;
    if (id === null) return;
    await shown('timeline-problem', async () => {
      const {entries} = await this.api.poll(`/subscribers/${id}/timeline`, {limit: MOST});
      if (id === this.#id) this.#draw(entries);
    });
  }

  #draw(entries) {
    show('record-timeline', entries.length > 0);
    redraw(byId('record-timeline'), entries.map(({at, event, message}) => element('li', {class: event.replace('.', '-')},
      element('time', {text: moment(at)}), element('span', {text: message}))));
  }
}
