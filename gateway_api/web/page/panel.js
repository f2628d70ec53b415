// How a panel shows a failed request.

import {Refused, Unreachable} from './api.js';
import {byId, complain} from './elements.js';

const read = new WeakSet();

/** Runs `act`, which reads what panels show, and shows an error response in the elements `ids`: one, several, or none. The top
    of the page shows a gateway that does not respond; a panel that has shown nothing yet says so itself. */
export async function shown(ids, act) {
  const places = [ids].flat().map(byId).map(target => ({target, panel: target.closest('.panel') ?? target.previousElementSibling}));
  try {
    await act();
    for (const {target, panel} of places) {
      complain(target);
      panel.classList.remove('stale');
      read.add(target);
    }
  } catch (error) {
    if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    for (const {target, panel} of places) {
      panel.classList.add('stale');
      const told = error instanceof Refused ? error.status !== 401 : !read.has(target);
      if (told) complain(target, error.message);
    }
  }
}
