// Signing in, at the beginning and again when the token has expired: on top of whatever is on the screen, which is
// there again afterwards.

import {ask} from './dialogs.js';
import {byId, write} from './elements.js';

export class SignIn {
  #api;
  #done;

  /** `done` is called each time somebody has signed in. */
  constructor(api, done) {
    this.#api = api;
    this.#done = done;
    api.addEventListener('expired', () => this.open('Your session has ended. Sign in again to go on.'));
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
