// How a panel shows a failed request.

import {Refused, Unreachable} from './api.js';
import {byId, complain} from './elements.js';

/** Runs `read`, and shows an error response in the element `id`. The top of the page shows a gateway that does not
    respond. */
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
