// A commit that is taken back unless somebody confirms it in time.

import {attempt} from './dialogs.js';
import {byId, show, write} from './elements.js';
import {duration} from './format.js';

export class Confirmation {
  #deadline = null;

  /** `tell` is called with what came of it. */
  constructor(api, tell) {
    byId('confirm-commit').addEventListener('click', () =>
      attempt(byId('unconfirmed'), byId('waiting-problem'), async () => {
        await api.post('/system/config/confirm');
        this.await(null);
        tell('Confirmed: it stays.');
      }));
    setInterval(() => this.#draw(), 1000);
  }

  /** Waits until a deadline, in epoch seconds; null is for none. */
  await(deadline) {
    this.#deadline = deadline;
    this.#draw();
  }

  #draw() {
    const left = this.#deadline === null ? 0 : this.#deadline - Date.now() / 1000;
    show('unconfirmed', left > 0);
    if (left > 0) write('unconfirmed-left', duration(left));
  }
}
