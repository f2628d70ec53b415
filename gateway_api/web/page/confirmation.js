// An unconfirmed commit: its deadline, and the button that confirms it.

import {attempt} from './dialogs.js';
import {byId, show, write} from './elements.js';
import {duration} from './format.js';

export class Confirmation {
  #api;
  #deadline = null;

  /** `tell` is called with the result as a sentence. */
  constructor(api, tell) {
    this.#api = api;
    byId('confirm-commit').addEventListener('click', () =>
      attempt(byId('unconfirmed'), byId('waiting-problem'), async () => {
        await api.post('/system/config/confirm');
        this.await(null);
        tell('The commit is confirmed.');
      }));
    setInterval(() => this.#draw(), 1000);
  }

  /** Shows a deadline in epoch seconds; null is for none. */
  await(deadline) {
    this.#deadline = deadline;
    this.#draw();
  }

  #draw() {
    show('unconfirmed', this.#deadline !== null);
    if (this.#deadline !== null) write('unconfirmed-left', duration(Math.max(0, this.#deadline - this.#api.now())));
  }
}
