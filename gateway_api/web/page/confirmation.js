// A commit that is taken back unless somebody confirms it in time.

import {attempt} from './dialogs.js';
import {byId, show, write} from './elements.js';
import {duration} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';

const SECONDS = 10;
// What settles whether a commit waits, in the words of the audit log; the newest of them counts.
const SETTLING = ['configuration.commit', 'configuration.confirm'];

export class Confirmation {
  #deadline = null;

  /** `tell` is called with what came of it. */
  constructor(api, tell) {
    this.api = api;
    byId('confirm-commit').addEventListener('click', () =>
      attempt(byId('unconfirmed'), byId('waiting-problem'), async () => {
        await api.post('/system/config/confirm');
        this.await(null);
        tell('Confirmed: it stays.');
      }));
    setInterval(() => this.#draw(), 1000);
    // No other answer tells of a commit that was made elsewhere, or before this page was opened.
    new Poll(SECONDS, () => api.isAdmin && this.#read(), ['configuration']);
  }

  /** Waits until a deadline, in epoch seconds; null is for none. */
  await(deadline) {
    this.#deadline = deadline;
    this.#draw();
  }

  async #read() {
    await shown('waiting-problem', async () => {
      const latest = await Promise.all(SETTLING.map(async action =>
        (await this.api.get('/audit', {action, result: 'done', limit: 1})).records));
      const [newest] = latest.flat().sort((one, other) => other.at - one.at);
      this.await(newest?.after?.confirm_deadline ?? null);
    });
  }

  #draw() {
    const left = this.#deadline === null ? 0 : this.#deadline - Date.now() / 1000;
    show('unconfirmed', left > 0);
    if (left > 0) write('unconfirmed-left', duration(left));
  }
}
