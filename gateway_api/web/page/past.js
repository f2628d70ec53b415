// The events of before the sign-in, which the core still holds.

import {Refused, Unreachable} from './api.js';
import {isShown, messages} from './messages.js';

// Of a busy gateway, only the newest: each has some 250 bytes.
const MOST = 5_000;

/** The events up to the one with the id `newest`, of those since `oldest`. None if they cannot be read. */
export async function eventsBefore(api, {oldest, newest}) {
  const [boot, last] = newest.split('-');
  const first = Math.max(Number(oldest.split('-')[1]) - 1, Number(last) - MOST, 0);
  const events = [], over = new AbortController();
  if (first >= Number(last)) return events;
  try {
    const response = await api.open('/events/subscribers', {'Last-Event-ID': `${boot}-${first}`}, over.signal);
    for await (const arrived of messages(response.body, () => {})) {
      events.push(...arrived.filter(isShown));
      if (Number(arrived.at(-1).id.split('-')[1]) >= Number(last)) break;
    }
  } catch (error) {
    // Optional: the chart begins empty.
    if (!(error instanceof Refused || error instanceof Unreachable || error.name === 'AbortError')) throw error;
  } finally {
    over.abort();
  }
  return events;
}
