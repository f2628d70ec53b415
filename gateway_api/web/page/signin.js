// The sign-in: with the token that the browser has, or by the dialog, which covers the screen; the screen stays as it is.

import {Refused, Unreachable} from './api.js';
import {ask} from './dialogs.js';
import {byId, complain, write} from './elements.js';

const PAUSE = 3_000;
const ENDED = 'Your token is no longer valid. Log in again to continue.';

export class SignIn {
  #api;
  #done;
  // The tabs of a browser have one token: each tells the others when a user has signed in.
  #tabs = new BroadcastChannel('signed-in');

  /** `done` is called after each sign-in. */
  constructor(api, done) {
    this.#api = api;
    this.#done = done;
    api.addEventListener('expired', () => this.#open(ENDED));
    this.#tabs.addEventListener('message', () => this.start());
    byId('sign-in').addEventListener('cancel', event => event.preventDefault());
  }

  /** Signs in with the browser's token, or opens the dialog without a valid one. Tries again until the gateway tells. */
  async start() {
    for (;;) {
      try {
        if (await this.#api.resume()) return this.#finish();
        return this.#open();
      } catch (error) {
        if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
        if (!byId('sign-in').open) this.#open();
        complain(byId('sign-in').querySelector('.problem'), error.message);
      }
      await new Promise(resolve => setTimeout(resolve, PAUSE));
      if (this.#api.user || byId('username').value) return;
    }
  }

  #finish() {
    byId('sign-in').close();
    this.#done();
  }

  #open(why) {
    if (why) write('sign-in-why', why);
    const password = byId('password');
    password.value = '';
    ask('sign-in', async () => {
      await this.#api.signIn(byId('username').value, password.value);
      password.value = '';
      this.#tabs.postMessage(null);
      this.#done();
    });
    (byId('username').value ? password : byId('username')).focus();
  }
}
