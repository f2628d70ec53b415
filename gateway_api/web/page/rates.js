// The dialog for new rates, and how long they last.

import {ask} from './dialogs.js';
import {byId, write} from './elements.js';
import {RATE} from './format.js';

/** Asks for rates. `act` is that of `ask`, and gets the body of a request; an empty direction is not in it. */
export function askRates({title, help, button, down = '', up = ''}, act) {
  write('rate-title', title);
  write('rate-help', `${RATE.title}. An empty direction stays as it is. ${help}`);
  write('rate-button', button);
  Object.assign(byId('rate-down'), RATE, {value: down});
  Object.assign(byId('rate-up'), RATE, {value: up});
  byId('rate-time').value = '';
  ask('rate-dialog', () => act(change()));
}

function change() {
  const given = {
    rate_down: byId('rate-down').value, rate_up: byId('rate-up').value, expires_in: Number(byId('rate-time').value),
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value));
}
