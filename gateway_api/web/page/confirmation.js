// An unconfirmed commit: its deadline, and the button that confirms it.

import {COMMIT_TIMEOUT} from './api.js';
import {attempt} from './dialogs.js';
import {byId, element, write} from './elements.js';
import {duration} from './format.js';
import {button} from './section.js';

export class Confirmation {
  #api;
  #deadline = null;

  /** `tell` is called with the result as a sentence. */
  constructor(api, tell) {
    this.#api = api;
    const confirm = () => attempt(this.place, byId('waiting-problem'), async () => {
      await api.post('/system/config/confirm', undefined, {timeout: COMMIT_TIMEOUT});
      this.await(null);
      tell('The commit is confirmed.');
    });
    this.place = element('div', {id: 'unconfirmed', class: 'notice', hidden: true},
      element('p', {}, element('b', {text: 'Not confirmed yet.'}), ' The former configuration returns in ',
        element('b', {id: 'unconfirmed-left', role: 'timer'}), '.'),
      button('confirm-commit', 'Confirm', '', {onclick: confirm}));
    setInterval(() => this.#draw(), 1000);
  }

  /** Shows a deadline in epoch seconds; null is for none. */
  await(deadline) {
    this.#deadline = deadline;
    this.#draw();
  }

  #draw() {
    this.place.hidden = this.#deadline === null;
    if (this.#deadline !== null) write('unconfirmed-left', duration(Math.max(0, this.#deadline - this.#api.now())));
  }
}
