// The sign-in dialog, at the start and again when the token is no longer valid. It covers the screen, which stays as it
// is.

import {ask} from './dialogs.js';
import {byId, write} from './elements.js';

export class SignIn {
  #api;
  #done;

  /** `done` is called after each sign-in. */
  constructor(api, done) {
    this.#api = api;
    this.#done = done;
    api.addEventListener('expired', () => this.open('Your token is no longer valid. Sign in again to continue.'));
    const dialog = byId('sign-in');
    dialog.addEventListener('cancel', event => event.preventDefault());
  }

  open(why) {
    if (why) write('sign-in-why', why);
    const password = byId('password');
    password.value = '';
    ask('sign-in', async () => {
      await this.#api.signIn(byId('username').value, password.value);
      password.value = '';
      this.#done();
    });
    (byId('username').value ? password : byId('username')).focus();
  }
}
