// What every panel does with an answer that didn't come.

import {Refused, Unreachable} from './api.js';
import {byId, complain} from './elements.js';

/** Runs `read` and has the API's sentence shown in the element `id` when it is refused. That the gateway doesn't
    answer at all is said once, at the top of the page. */
export async function shown(id, read) {
  const target = byId(id);
  const panel = target.closest('.panel') ?? target.previousElementSibling;
  try {
    await read();
    complain(target);
    panel.classList.remove('stale');
  } catch (error) {
    if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    panel.classList.add('stale');
    if (error instanceof Refused && error.status !== 401) complain(target, error.message);
  }
}
